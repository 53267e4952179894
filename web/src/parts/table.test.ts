import { describe, expect, it } from "vitest";

import { type Column, filtered, readOrder, sorted, visible, writeOrder } from "./table";

interface Row {
  id: string;
  name: string;
  size: number;
}

const columns: Column<Row>[] = [
  { key: "name", title: "Name", value: (row) => row.name },
  { key: "size", title: "Size", value: (row) => row.size, text: (row) => `${row.size} GiB` },
];
const rows: Row[] = [
  { id: "b", name: "web-10", size: 2 },
  { id: "a", name: "web-9", size: 2 },
  { id: "c", name: "db-1", size: 30 },
];

describe("a table", () => {
  it("sorts numbers in names as numbers, and equal rows by their ids", () => {
    const by = (key: string, descending = false) => sorted(rows, columns, { key, descending }, (row) => row.id).map((row) => row.id);
    expect(by("name")).toEqual(["c", "a", "b"]);
    expect(by("name", true)).toEqual(["b", "a", "c"]);
    expect(by("size")).toEqual(["a", "b", "c"]);
    expect(by("size", true)).toEqual(["c", "a", "b"]);
  });

  it("finds rows that say every word, in what is shown", () => {
    expect(filtered(rows, columns, "WEB gib").map((row) => row.id)).toEqual(["b", "a"]);
    expect(filtered(rows, columns, " 30 ").map((row) => row.id)).toEqual(["c"]);
    expect(filtered(rows, columns, "web 30")).toEqual([]);
    expect(filtered(rows, columns, "")).toHaveLength(3);
  });

  it("has an order that an address can carry", () => {
    const standard = { key: "name", descending: false };
    expect(readOrder("-size", columns, standard)).toEqual({ key: "size", descending: true });
    expect(readOrder("nonsense", columns, standard)).toBe(standard);
    expect(readOrder(undefined, columns, standard)).toBe(standard);
    expect(writeOrder({ key: "size", descending: true })).toBe("-size");
  });

  it("draws what is seen and a little more", () => {
    expect(visible(5000, 44, 0, 880)).toEqual({ from: 0, to: 28 });
    expect(visible(5000, 44, 44 * 4990, 880)).toEqual({ from: 4982, to: 5000 });
    expect(visible(0, 44, 0, 880)).toEqual({ from: 0, to: 0 });
    expect(visible(10, 44, 100_000, 880)).toEqual({ from: 10, to: 10 });
  });
});
