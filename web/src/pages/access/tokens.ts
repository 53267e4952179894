// The tokens of whoever is signed in. Nothing tells of their changes, so they are asked for when the page is opened and after each change.

import { get, post, remove } from "@/api/http";
import { duration } from "@/parts/quantity";
import { words } from "@/words";

export interface Token {
  id: string;
  name: string;
  description?: string | null;
  created: string;
  /** Empty is never. */
  expiresAt?: string | null;
  expired: boolean;
  /** Made by somebody who was signed in, and not by signing in. */
  isDerived: boolean;
  current: boolean;
  labels?: Record<string, string> | null;
  links: Record<string, string>;
}

export type Kind = keyof typeof words.access.kinds;

/** The server's mark, which nobody writes who makes a token; a description is anybody's. */
const KIND_LABEL = "authn.management.cattle.io/kind";

export function kindOf(token: Token): Kind {
  if (token.current) return "current";
  if (!token.isDerived) return "session";
  return token.labels?.[KIND_LABEL] === "kubeconfig" ? "kubeconfig" : "program";
}

export function endOf(token: Token, now: number): string {
  if (token.expired) return words.access.expired;
  const end = token.expiresAt ? Date.parse(token.expiresAt) : Number.NaN;
  return Number.isNaN(end) ? words.access.never : words.access.inTime(duration((end - now) / 1000));
}

/** What is used by programs first, then sessions; the newest of each first. */
export function ordered(tokens: readonly Token[]): Token[] {
  return [...tokens].sort((one, other) => Number(other.isDerived) - Number(one.isDerived) || other.created.localeCompare(one.created) || one.id.localeCompare(other.id));
}

const HOUR = 3600_000;
/** Milliseconds; 0 is for ever. */
export const lifetimes: Record<keyof typeof words.access.lifetimes, number> = {
  hour: HOUR,
  day: 24 * HOUR,
  month: 30 * 24 * HOUR,
  quarter: 90 * 24 * HOUR,
  year: 365 * 24 * HOUR,
  never: 0,
};

export const listTokens = async () => ordered((await get<{ data: Token[] }>("/v3/tokens")).data);
export const createToken = (description: string, ttl: number) => post<Token & { token: string }>("/v3/tokens", { type: "token", description, ttl });
export const removeToken = (token: Token) => remove(`/v3/tokens/${encodeURIComponent(token.id)}`);
export const kubeconfig = async () => (await post<{ config: string }>("/v3/clusters/local?action=generateKubeconfig")).config;
