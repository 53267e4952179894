// Everything the console says. Another language is another file with the same shape.

import { en } from "./en";

export type Words = typeof en;
export const words: Words = en;
