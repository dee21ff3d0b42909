// What the page does by itself: which buttons can be pressed, and where the program is edited.
const cvDemo = (() => {
  const status = (text, busy) => `<div class="demo-status"${busy ? ' data-busy' : ''} role="status">${text}</div>`;
  const LOST = '<div class="demo-message demo-error" role="alert">The server is busy, or did not answer. Try again.</div>';
  const ended = box => (box || '').replace(/(working|waiting) \.\.\./, 'none: stopped');
  const over = (text, answer, baseline) => [status(text), ended(answer), ended(baseline), ''];
  let before = '', stopping = false, picked = '';

  const press = able => ({__type__: 'update', interactive: Boolean(able)});
  const close = () => {
    const editing = document.body.classList.contains('demo-editing');
    document.body.classList.remove('demo-editing');
    if (editing) document.getElementById('cv-edit')?.focus({preventScroll: true});
  };

  // A picture of the gallery, or what is said of one.
  document.addEventListener('click', event => {
    const one = event.target.closest('button[data-picture]');
    if (!one) return;
    picked = `${one.dataset.picture} ${one.dataset.said || ''}`;
    document.querySelectorAll('[aria-current]').forEach(old => old.removeAttribute('aria-current'));
    if (!one.dataset.said) one.setAttribute('aria-current', 'true');
    document.getElementById('cv-open')?.click();
  });

  return {
    picked: () => [picked],
    opened: () => {
      requestAnimationFrame(() => document.getElementById('cv-opened')?.scrollIntoView({block: 'nearest'}));
      return [];
    },
    folder: files => [
      (files || []).filter(one => /\.(jpe?g|jpe|jfif|png|webp|gif|bmp|tiff?|mpo)$/i.test(one.orig_name || one.path))
        .sort((one, other) => one.orig_name.localeCompare(other.orig_name, 'en', {numeric: true}))
        .map(one => ({image: one, caption: null})),
    ],
    // Before anything is sent: it shows at once that something happens, where there is something to see.
    begin: () => {
      close();
      stopping = false;
      const line = document.getElementById('cv-status');
      if (window.innerWidth < 900) line?.scrollIntoView({behavior: 'smooth'});
      return [status('Asking ...', true), '', ''];
    },
    // Gradio calls what a visitor stopped a failure, too, and tells it after all else that was under way.
    failed: (message, _, answer, baseline) =>
      stopping ? [message, ...over('Stopped.', answer, baseline)] : [LOST, ...over('Failed.', answer, baseline)],
    stopped: (_, answer, baseline) => {
      stopping = true;
      return over('Stopped.', answer, baseline);
    },
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
    states: (pictures, question, shown, program) => {
      const busy = (shown || '').includes(' data-busy ');
      const given = (pictures || []).length > 0;
      const written = (program || '').trim();
      return [
        press(busy),
        press(given && (question || '').trim() && !busy),
        press(given && written && !busy),
        {__type__: 'update', value: written ? 'Edit program' : 'Write a program'},
        ...[...document.querySelectorAll('[id^=cv-example-]')].map(() => press(!busy)),
      ];
    },
  };
})();
