import { describe, expect, it } from "vitest";

import { failureOf, type Image, setbackOf, toneOfImage } from "./image";

const image = (...conditions: [type: string, status: string, message: string][]) =>
  ({ status: { conditions: conditions.map(([type, status, message]) => ({ type, status, message })) } }) as Image;
const LIMIT: [string, string, string] = ["RetryLimitExceeded", "True", "VMImage reached the retry limit"];

describe("an image that does not come", () => {
  it("tells the cause, and that it was tried often enough only where there is none", () => {
    expect(failureOf(image(["Imported", "False", "connection refused"], LIMIT))).toBe("connection refused");
    expect(failureOf(image(["Imported", "False", ""], LIMIT))).toBe(LIMIT[2]);
    expect(failureOf(image(["Imported", "False", "not a disk"]))).toBe("not a disk");
  });

  it("tells what went wrong while it is tried again, and is not given up", () => {
    const again = image(["Imported", "Unknown", "connection refused"]);
    expect([setbackOf(again), failureOf(again), toneOfImage(again)]).toEqual(["connection refused", "", "busy"]);
    expect(setbackOf(image(["Imported", "Unknown", ""]))).toBe("");
    expect(setbackOf(image(["Imported", "True", "x"]))).toBe("");
    expect(setbackOf(image(["Imported", "Unknown", "connection refused"], LIMIT))).toBe("");
    expect(setbackOf({} as Image)).toBe("");
  });
});
