// Kubernetes' quantities and times, read and written for people.

import { now } from "./clock";

const binary: Record<string, number> = { Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60 };
const decimal: Record<string, number> = { n: 1e-9, u: 1e-6, m: 1e-3, "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18 };

/** `undefined` for what is none. */
export function quantity(text: unknown): number | undefined {
  if (typeof text === "number") return text;
  if (typeof text !== "string") return undefined;
  const parts = /^([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)$/.exec(text.trim());
  if (!parts) return undefined;
  const number = Number(parts[1]);
  const unit = binary[parts[2] ?? ""] ?? decimal[parts[2] ?? ""];
  return Number.isFinite(number) && unit !== undefined ? number * unit : undefined;
}

const sizes = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(count: number | undefined): string {
  if (count === undefined || !Number.isFinite(count)) return "–";
  let value = Math.abs(count);
  let unit = 0;
  while (value >= 1023.5 && unit < sizes.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 99.95 ? 0 : 1;
  const written = value.toFixed(digits).replace(/\.0$/, "");
  return `${count < 0 ? "-" : ""}${written} ${sizes[unit]}`;
}

export const rate = (perSecond: number | undefined) => (perSecond === undefined ? "–" : `${bytes(perSecond)}/s`);

/** How long ago, as people say it of machines: `3d`, `4h`, `12m`. */
export function age(timestamp: string | undefined, at = now.value): string {
  const from = timestamp === undefined ? Number.NaN : Date.parse(timestamp);
  return Number.isNaN(from) ? "–" : duration((at - from) / 1000);
}

export function duration(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 120) return `${whole}s`;
  if (whole < 7200) return `${Math.floor(whole / 60)}m`;
  if (whole < 172_800) return `${Math.floor(whole / 3600)}h`;
  return `${Math.floor(whole / 86_400)}d`;
}

/** A date and time in the reader's own way of writing them. */
export function moment(timestamp: string | undefined): string {
  const at = timestamp === undefined ? Number.NaN : Date.parse(timestamp);
  return Number.isNaN(at) ? "–" : new Date(at).toLocaleString();
}

/** The time of what was today, the date as well of what was before. */
export function clockTime(timestamp: string | undefined, today = new Date(now.value)): string {
  const at = new Date(timestamp === undefined ? Number.NaN : Date.parse(timestamp));
  if (Number.isNaN(at.getTime())) return "–";
  if (at.toDateString() === today.toDateString()) return at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  return at.toLocaleString([], { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
}
