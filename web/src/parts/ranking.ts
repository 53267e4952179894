// What somebody means by a few letters: the beginning of a name before its middle, and letters in order before nothing.

function score(text: string, asked: string): number | undefined {
  const said = text.toLowerCase();
  if (said.startsWith(asked)) return 0;
  if (said.split(/[\s\-_./]+/).some((word) => word.startsWith(asked))) return 1;
  if (said.includes(asked)) return 2;
  let from = 0;
  for (const letter of asked) {
    from = said.indexOf(letter, from) + 1;
    if (from === 0) return undefined;
  }
  return 3;
}

export function ranked<T>(choices: readonly T[], asked: string, textOf: (one: T) => string): T[] {
  const wanted = asked.trim().toLowerCase();
  if (wanted === "") return [...choices];
  return choices
    .map((choice) => ({ choice, score: score(textOf(choice), wanted) }))
    .filter((one): one is { choice: T; score: number } => one.score !== undefined)
    .sort((one, other) => one.score - other.score || textOf(one.choice).length - textOf(other.choice).length)
    .map((one) => one.choice);
}
