// xterm.js writes style elements, which the policy of this page forbids: nothing inline, from whoever. The text of such an element
// is put into a style sheet of the document instead, which is no element and has no way for markup to become one.

/** An element that can be put into the page and says nothing there; its text is a style sheet's. */
function placeholder(): HTMLElement {
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  const element = document.createElement("span");
  element.hidden = true;
  let css = "";
  Object.defineProperty(element, "textContent", {
    get: () => css,
    set: (text: string) => {
      css = text;
      sheet.replaceSync(text);
    },
  });
  const leave = element.remove.bind(element);
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => one !== sheet);
    leave();
  };
  return element;
}

/** Whatever makes style elements meanwhile gets something else that serves. The terminal's own way to be given another document is
 * not heard by all of its parts. */
export function withoutStyleElements(open: () => void) {
  const make = document.createElement;
  document.createElement = ((name: string, options?: ElementCreationOptions) => {
    if (name !== "style") return make.call(document, name, options);
    document.createElement = make;
    const made = placeholder();
    document.createElement = instead;
    return made;
  }) as typeof document.createElement;
  const instead = document.createElement;
  try {
    open();
  } finally {
    document.createElement = make;
  }
}
