import { beforeEach, expect, it, vi } from "vitest";

import { complain, say, toasts } from "./toasts";

beforeEach(() => {
  vi.useFakeTimers();
  toasts.length = 0;
});

it("keeps refusals until they are closed, however many there are", () => {
  for (let number = 0; number < 8; number += 1) complain(`refused ${number}`);
  for (let number = 0; number < 8; number += 1) say(`done ${number}`);
  vi.advanceTimersByTime(60_000);
  expect(toasts.map((one) => one.text)).toEqual(Array.from({ length: 8 }, (_, number) => `refused ${number}`));
});

it("lets the oldest of what was done make room, and says one refusal once", () => {
  complain("refused");
  complain("refused");
  for (let number = 0; number < 6; number += 1) say(`done ${number}`);
  expect(toasts.map((one) => one.text)).toEqual(["refused", "done 2", "done 3", "done 4", "done 5"]);
});
