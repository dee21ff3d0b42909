// What the page does by itself: which buttons can be pressed, and where the program is edited.
const cvDemo = (() => {
  const status = (text, busy) => `<div class="demo-status"${busy ? ' data-busy' : ''} role="status">${text}</div>`;
  const LOST = '<div class="demo-message demo-error" role="alert">The server is busy, or did not answer. Try again.</div>';
  const ended = box => (box || '').replace(/working \.\.\./g, 'stopped before an answer');
  const over = (text, answer, baseline) => [status(text), ended(answer), ended(baseline), ''];
  const KEPT = 'codevqa-answers', MOST = 12, ANSWER = 4;  // the answer's place among what is kept
  const escape = text => String(text || '').replace(/[&<>"']/g, one => `&#${one.charCodeAt(0)};`);
  let before = '', original = '', stopping = false, picked = '', looking = false, place = 0, kept = [];
  let example = true, old = new Set();  // whether the pictures are an example's, and which they are
  let asked, seen = [[], '', false];  // what the answer is to, and what the page shows now
  try { kept = JSON.parse(sessionStorage.getItem(KEPT)) || []; } catch { /* a browser that stores nothing */ }

  const calm = () => document.querySelectorAll('button[aria-busy]').forEach(one => one.removeAttribute('aria-busy'));
  const press = able => ({__type__: 'update', interactive: Boolean(able)});
  const close = () => {
    const editing = document.body.classList.contains('demo-editing');
    document.body.classList.remove('demo-editing');
    if (editing) document.getElementById('cv-edit')?.focus({preventScroll: true});
  };

  // The last answers, for as long as the tab is open. Of those that take too much room the oldest goes.
  const store = () => {
    for (let count = kept.length; count >= 0; count -= 1) {
      try { return sessionStorage.setItem(KEPT, JSON.stringify(kept.slice(0, count))); } catch { /* one less */ }
    }
  };
  const row = (one, number) => {
    const box = new DOMParser().parseFromString(one.values[ANSWER], 'text/html');
    const said = selector => escape(box.querySelector(selector)?.textContent);
    const [first, ...more] = (one.values[0] || []).map(each => each.image.orig_name || each.image.path.split('/').pop());
    const about = [one.time, more.length ? `${more.length + 1} pictures` : escape(first), said('.cv-tag'), said('ins')];
    return `<button type="button" data-kept="${number}">${escape(one.values[1])} <b>${said('.demo-big') || 'no answer'}</b>
      <small>${about.filter(Boolean).join(' · ')}</small></button>`;
  };
  const history = () => [kept.map(row).join('') || '<p class="demo-small">Your answers in this tab will be listed here.</p>'];

  // Says why Ask is grey, how long the question is, and whether the answer is to something else; returns whether it may be.
  const key = (pictures, question) => JSON.stringify([(pictures || []).map(one => one.image.path), (question || '').trim()]);
  const ask = (pictures, question) => {
    asked = key(pictures, question);
    return [pictures, question];
  };
  const explain = (pictures, question, busy) => {
    seen = [pictures, question, busy];
    const [why, count] = ['cv-why', 'cv-count'].map(name => document.getElementById(name));
    const most = Number(count.dataset.most), length = [...(question || '').trim().replace(/\s+/g, ' ')].length;
    const changed = !busy && asked !== undefined && asked !== key(pictures, question);
    const grey = document.body.classList.contains('demo-uploading') ? 'Uploading the pictures.' : busy ? 'Wait, or press Stop.'
      : !(pictures || []).length ? 'Add a picture first.' : !length ? 'Type a question.'
      : length > most ? `Too long by ${(length - most).toLocaleString('en')}.` : '';
    why.textContent = grey || (changed ? 'Changed: press Ask again.' : '');
    count.textContent = `${length.toLocaleString('en')} of ${most.toLocaleString('en')} characters`;
    document.body.classList.toggle('demo-changed', changed);
    return !grey;
  };

  // Until an upload is here Ask would ask about the pictures before.
  const hold = held => {
    document.body.classList.toggle('demo-uploading', held);
    document.getElementById('cv-ask').disabled = !explain(...seen);
  };
  const send = window.fetch;
  let late;
  window.fetch = (what, ...more) => {
    const sent = send(what, ...more);
    if (/\/upload(\?|$)/.test(what)) {
      if (example) old = new Set([...document.querySelectorAll('#cv-pictures img')].map(one => one.src));
      clearTimeout(late);
      hold(true);
      sent.catch(() => {}).then(() => { late = setTimeout(hold, 1000, false); });
    }
    return sent;
  };

  // A picture of the gallery, or what is said of one.
  document.addEventListener('click', event => {
    const back = event.target.closest('[data-kept]');
    if (event.target.closest('[id^=cv-example-]')) example = true;
    if (back) {
      place = Number(back.dataset.kept);
      document.getElementById('cv-back')?.click();
    }
    const one = event.target.closest('button[data-picture]');
    if (!one) return;
    looking = !one.dataset.said;
    picked = `${one.dataset.picture} ${one.dataset.said || ''}`;
    document.querySelectorAll('[aria-current]').forEach(old => old.removeAttribute('aria-current'));
    if (looking) one.setAttribute('aria-current', 'true');
    one.setAttribute('aria-busy', 'true');
    document.getElementById('cv-open')?.click();
  });

  // Gradio puts the button that uploads into another, whenever there is no picture: only the inner one is to be reached.
  new MutationObserver(() => document.querySelectorAll('#cv-pictures button:has(button):not([role])').forEach(outer => {
    [outer.role, outer.tabIndex] = ['group', -1];
  })).observe(document.documentElement, {childList: true, subtree: true});
  return {
    picked: () => [picked],
    opened: () => {
      calm();
      requestAnimationFrame(() => document.getElementById('cv-opened')?.scrollIntoView({block: 'nearest'}));
      return [];
    },
    ask,
    load: (pictures, question) => {
      explain(...ask(pictures, question), false);
      return history();
    },
    keep: (...values) => {
      if (looking) return history();  // a picture was opened: nothing was asked
      const time = new Date().toLocaleTimeString([], {hour: '2-digit', minute: '2-digit', second: '2-digit'});
      kept = [{time, original, values}, ...kept].slice(0, MOST);
      store();
      return history();
    },
    back: () => {
      close();
      original = kept[place].original;
      ask(...kept[place].values);
      document.getElementById('cv-status')?.scrollIntoView({block: 'nearest'});
      return [...kept[place].values, '', press(false)];
    },
    // A visitor's own pictures replace those of an example.
    given: pictures => {
      const own = (pictures || []).filter(one => !old.has(new URL(one.image.url, location).href));
      [example, old] = [false, new Set()];
      hold(false);
      return [own.length ? own : pictures];
    },
    folder: files => {
      [example, old] = [false, new Set()];
      hold(false);
      return [
        (files || []).filter(one => /\.(jpe?g|jpe|jfif|png|webp|gif|bmp|tiff?|mpo)$/i.test(one.orig_name || one.path))
          .sort((one, other) => one.orig_name.localeCompare(other.orig_name, 'en', {numeric: true}))
          .map(one => ({image: one, caption: null})),
      ];
    },
    // Before anything is sent: it shows at once that something happens, where there is something to see.
    begin: () => {
      close();
      [stopping, looking] = [false, false];
      const line = document.getElementById('cv-status');
      if (window.innerWidth <= 900) requestAnimationFrame(() => line?.scrollIntoView());
      return [status('Asking ...', true), '', ''];
    },
    // Gradio calls what a visitor stopped a failure, too, and tells it after all else that was under way.
    failed: (message, _, answer, baseline) => {
      calm();
      return stopping ? [message, ...over('Stopped.', answer, baseline)] : [LOST, ...over('Failed.', answer, baseline)];
    },
    stopped: (_, answer, baseline) => {
      stopping = true;
      return over('Stopped.', answer, baseline);
    },
    run: (pictures, question, program) => [...ask(pictures, question), program, original],
    edit: program => {
      before = program || '';
      // Of a program that was edited before the one that was written is kept.
      if (!document.querySelector('#cv-answer .cv-tag')) original = before;
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
        press(explain(pictures, question, busy)),
        press(given && written && !busy),
        {__type__: 'update', value: written ? 'Edit program' : 'Write a program'},
        ...[...document.querySelectorAll('[id^=cv-example-]')].map(() => press(!busy)),
      ];
    },
  };
})();
