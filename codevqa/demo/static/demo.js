// What the page does by itself: which buttons can be pressed, what is out of date, and where the program is edited.
const cvDemo = (() => {
  const BUSY = '<div class="demo-status" data-busy role="status">Asking ...</div>';
  const LOST = '<div class="demo-message demo-error" role="alert">The server did not answer. Load the page again.</div>';
  const OLD = '<div class="demo-message demo-note" role="status">The question or its pictures have changed since:' +
    ' what is shown here answers the earlier one.</div>';
  let asked = null;
  let before = '';

  const key = (pictures, question) =>
    JSON.stringify([(pictures || []).map(one => (one.image || one.video || {}).path), (question || '').trim()]);
  const press = able => ({__type__: 'update', interactive: Boolean(able)});
  const close = () => {
    const editing = document.body.classList.contains('demo-editing');
    document.body.classList.remove('demo-editing');
    if (editing) document.getElementById('cv-edit')?.focus({preventScroll: true});
  };

  return {
    // Before anything is sent: it shows at once that something happens, where there is something to see.
    begin: () => {
      close();
      const status = document.getElementById('cv-status');
      if (window.innerWidth < 900) status?.scrollIntoView({behavior: 'smooth'});
      return [BUSY, ''];
    },
    sent: (...given) => {
      asked = key(given[0], given[1]);
      return given;
    },
    shown: (pictures, question) => {
      asked = key(pictures, question);
      close();
      return [];
    },
    failed: () => [LOST, '<div class="demo-status" role="status">Failed.</div>'],
    edit: program => {
      before = program || '';
      document.body.classList.add('demo-editing');
      requestAnimationFrame(() => document.querySelector('#cv-program .cm-content')?.focus());
      return [];
    },
    leave: () => {
      close();
      return [before];
    },
    states: (pictures, question, status, program) => {
      const busy = (status || '').includes(' data-busy ');
      const given = (pictures || []).length > 0;
      const stale = !busy && asked !== null && key(pictures, question) !== asked;
      document.body.classList.toggle('demo-stale', stale);
      return [
        press(given && (question || '').trim() && !busy),
        press(busy),
        press(given && (program || '').trim() && !busy),
        {__type__: 'update', value: (program || '').trim() ? 'Edit program' : 'Write a program'},
        stale ? OLD : '',
      ];
    },
  };
})();
