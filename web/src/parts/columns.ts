// Columns that lists of objects have in common.

import type { Thing } from "@/api/objects";
import { words } from "@/words";

import { age } from "./quantity";
import type { Column } from "./table";

export const nameColumn = <T extends Thing>(): Column<T> => ({ key: "name", title: words.common.name, value: (thing) => thing.metadata.name });

export const namespaceColumn = <T extends Thing>(): Column<T> => ({
  key: "namespace",
  title: words.common.namespace,
  value: (thing) => thing.metadata.namespace ?? "",
  width: "140",
  wideOnly: true,
});

export const ageColumn = <T extends Thing>(): Column<T> => ({
  key: "age",
  title: words.common.age,
  value: (thing) => -Date.parse(thing.metadata.creationTimestamp),
  text: (thing) => age(thing.metadata.creationTimestamp),
  width: "70",
  align: "end",
  wideOnly: true,
});

/** Those that are wanted, in their order. */
export const those = <T>(columns: (Column<T> | false)[]): Column<T>[] => columns.filter((one) => one !== false);
