// Text as keys of a keyboard.

export interface Key {
  keysym: number;
  /** A guest that looks at the keys and not at what they mean needs this one, too. */
  shift: boolean;
}

const named: Record<string, number> = { "\n": 0xff0d, "\t": 0xff09, "\b": 0xff08 };
const shifted = new Set('ABCDEFGHIJKLMNOPQRSTUVWXYZ~!@#$%^&*()_+{}|:"<>?');

export function keysOf(text: string): Key[] {
  return [...text.replace(/\r\n?/g, "\n")].map((letter) => {
    const code = letter.codePointAt(0) ?? 0;
    // X's own numbers: Latin-1 is itself, all else is its place in Unicode with a bit set.
    const keysym = named[letter] ?? (code < 0x100 ? code : 0x1000000 | code);
    return { keysym, shift: shifted.has(letter) };
  });
}
