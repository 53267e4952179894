// How fast something goes and how long it will take, from how far it was heard to be.
//
// It is heard in whole percents, at most once a second, and some of it late. So one step says little, and the rate is that of the
// last steps together; and where it is found first says nothing, since nobody knows for how long it has been there. Between steps
// the time left goes by with the clock, and a step that is late makes the rate sink: nothing leaps when it comes at last.

/** Milliseconds: steps of so long are looked at, and always so many of them. */
const WINDOW = 20_000;
const FEWEST = 5;
/** What comes sooner after the last step is no step of its own. */
const APART = 500;
/** Whoever was not heard of for longer than that, and for longer than all of the steps took, is not foretold any more. */
const SILENCE = 30_000;

interface Step {
  at: number;
  percent: number;
}

export interface Pace {
  readonly percent: number;
  readonly steps: readonly Step[];
}

export interface Outlook {
  /** Percents in a second. */
  rate: number;
  /** Seconds. */
  left: number;
}

/** What is known after this, too. What goes back begins anew, and so does everything when the clock goes back. */
export function heard(before: Pace | undefined, at: number, percent: number): Pace {
  const last = before?.steps.at(-1);
  if (before === undefined || percent < before.percent || (last && at < last.at)) return { percent, steps: [] };
  if (percent === before.percent) return before;
  if (last && at - last.at < APART) return { ...before, percent };
  const steps = [...before.steps, { at, percent }];
  return { percent, steps: steps.filter((step, index) => index >= steps.length - FEWEST || step.at >= at - WINDOW) };
}

/** None from less than two steps. */
export function outlook({ steps }: Pace, now: number): Outlook | undefined {
  const [first, last] = [steps[0], steps.at(-1)];
  if (!first || !last || first === last) return undefined;
  const span = last.at - first.at;
  const usual = span / (steps.length - 1);
  const silent = Math.max(0, now - last.at);
  const late = Math.max(0, silent - usual);
  if (late > Math.max(span, SILENCE)) return undefined;
  const rate = ((last.percent - first.percent) / (span + late)) * 1000;
  return { rate, left: Math.max(0, (100 - last.percent) / rate - Math.min(silent, usual) / 1000) };
}
