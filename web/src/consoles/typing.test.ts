import { expect, it } from "vitest";

import { keysOf } from "./typing";

it("types letters, returns and what is beyond Latin-1", () => {
  expect(keysOf("aA\r\n€")).toEqual([
    { keysym: 0x61, shift: false },
    { keysym: 0x41, shift: true },
    { keysym: 0xff0d, shift: false },
    { keysym: 0x10020ac, shift: false },
  ]);
});
