import { describe, expect, it } from "vitest";

import { heard, outlook, type Pace } from "./pace";

/** Of `[seconds, percent]`. */
const paceOf = (...samples: [number, number][]) => samples.reduce<Pace | undefined>((pace, [at, percent]) => heard(pace, at * 1000, percent), undefined) as Pace;
const seen = (pace: Pace, seconds: number) => outlook(pace, seconds * 1000);

describe("a pace", () => {
  it("is not foretold from where something is found, nor from one step", () => {
    expect(seen(paceOf([0, 37]), 0)).toBeUndefined();
    expect(seen(paceOf([0, 37], [0.1, 38]), 1)).toBeUndefined();
    expect(seen(paceOf([0, 37], [0.1, 37], [4, 37]), 5)).toBeUndefined();
  });

  it("is that of the steps, and not of the time before the first", () => {
    expect(seen(paceOf([0, 37], [0.1, 38], [2.1, 40]), 2.1)).toEqual({ rate: 1, left: 60 });
  });

  it("goes by with the clock until the next step is due", () => {
    const pace = paceOf([0, 0], [10, 1], [20, 2], [30, 3]);
    expect(seen(pace, 30)?.left).toBeCloseTo(970);
    expect(seen(pace, 35)?.left).toBeCloseTo(965);
    expect(seen(pace, 35)?.rate).toBeCloseTo(0.1);
    // The page's clock may be behind what it heard last.
    expect(seen(pace, 26)?.left).toBeCloseTo(970);
  });

  it("sinks while a step is late, and does not leap when it comes", () => {
    const pace = paceOf([0, 0], [1, 1], [2, 2], [3, 3], [4, 4], [5, 5], [6, 6]);
    const waiting = seen(pace, 9.9);
    expect(waiting?.rate).toBeLessThan(0.7);
    const after = seen(heard(pace, 9900, 7), 9.9);
    expect(Math.abs((after?.left ?? 0) - (waiting?.left ?? 0)) / (waiting?.left ?? 1)).toBeLessThan(0.1);
  });

  it("is not foretold any more of what has stopped", () => {
    const pace = paceOf([0, 0], [1, 1], [2, 2], [3, 3]);
    expect(seen(pace, 20)).toBeDefined();
    expect(seen(pace, 60)).toBeUndefined();
  });

  it("begins anew when it goes back", () => {
    const pace = paceOf([0, 50], [1, 51], [2, 52], [3, 0]);
    expect(seen(pace, 3)).toBeUndefined();
    expect(seen(heard(heard(pace, 4000, 10), 5000, 20), 5)).toEqual({ rate: 10, left: 8 });
    expect(seen(paceOf([10, 1], [11, 2], [12, 3], [2, 4]), 2)).toBeUndefined();
  });

  it("forgets how it was long ago, but not all of a slow one", () => {
    const fast: [number, number][] = Array.from({ length: 40 }, (_, second) => [second, second]);
    const slow: [number, number][] = Array.from({ length: 30 }, (_, second) => [40 + second, 39 + (second + 1) / 10]);
    expect(seen(paceOf(...fast, ...slow), 69)?.rate).toBeCloseTo(0.1, 3);
    const creeping = paceOf([0, 0], [60, 1], [120, 2], [180, 3], [240, 4], [300, 5], [360, 6]);
    expect(creeping.steps).toHaveLength(5);
    expect(seen(creeping, 360)?.left).toBeCloseTo(94 * 60);
  });

  it("is measured by steps that are apart", () => {
    const many: [number, number][] = Array.from({ length: 200 }, (_, index) => [index / 20, index / 4]);
    const pace = paceOf(...many);
    expect(pace.steps.length).toBeLessThan(25);
    expect(pace.percent).toBe(49.75);
    expect(seen(pace, 10)?.rate).toBeCloseTo(5, 1);
  });
});
