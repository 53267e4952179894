import { expect, it } from "vitest";

import { ranked } from "./ranking";

it("puts beginnings first, then beginnings of words, then middles, then letters in order", () => {
  const names = ["old-web", "web", "cobweb", "w-e-b", "db", "web-12"];
  expect(ranked(names, "WEB", (name) => name)).toEqual(["web", "web-12", "old-web", "cobweb", "w-e-b"]);
  expect(ranked(names, "", (name) => name)).toHaveLength(6);
  expect(ranked(names, "xyz", (name) => name)).toEqual([]);
});
