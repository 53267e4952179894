// Requests to the server this page came from.
//
// The session is a cookie that no script can read. What changes something says the word of the cookie `CSRF` beside it, which
// only pages of this origin can.

import { words } from "@/words";

/** What the server refused, in its own words. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    message: string,
    /** The server's word for it, such as `NotFound` or `Conflict`. */
    readonly reason = "",
  ) {
    super(message);
  }
}

/** The server could not be reached, or broke off. */
export class Unreachable extends Error {}

export interface Options {
  body?: unknown;
  /** Of the body; JSON if not said. */
  type?: string;
  signal?: AbortSignal;
  /** Milliseconds until an answer that is not there whole is given up. Infinity for one that has no end. */
  patience?: number;
  headers?: Record<string, string>;
}

/** A network that swallows everything would keep a page waiting for ever. */
const PATIENCE = 90_000;

type Ended = () => void;
let whenSessionEnds: Ended = () => {};

/** Who is told that a request was refused because nobody is signed in any more. */
export function onSessionEnd(ended: Ended) {
  whenSessionEnds = ended;
}

export async function ask<T = unknown>(method: string, path: string, options: Options = {}): Promise<T> {
  const response = await send(method, path, options);
  const text = await read(response);
  if (text === "") return undefined as T;
  try {
    return JSON.parse(text) as T;
  } catch {
    throw new Unreachable(words.errors.garbled(location.host));
  }
}

export const get = <T>(path: string, signal?: AbortSignal) => ask<T>("GET", path, signal ? { signal } : {});
export const post = <T>(path: string, body: unknown = {}) => ask<T>("POST", path, { body });
export const put = <T>(path: string, body: unknown) => ask<T>("PUT", path, { body });
export const remove = <T>(path: string) => ask<T>("DELETE", path);
export const merge = <T>(path: string, body: unknown) => ask<T>("PATCH", path, { body, type: "application/merge-patch+json" });

/** The answer itself, once it is known not to be a refusal. */
export async function send(method: string, path: string, options: Options = {}): Promise<Response> {
  const headers: Record<string, string> = { Accept: "application/json", ...options.headers };
  const init: RequestInit = { method, headers, credentials: "same-origin" };
  const patience = options.patience ?? PATIENCE;
  const signals = patience === Infinity ? [] : [AbortSignal.timeout(patience)];
  if (options.signal) signals.push(options.signal);
  init.signal = AbortSignal.any(signals);
  if (method !== "GET") headers["X-API-CSRF"] = csrfWord();
  if (options.body !== undefined) {
    headers["Content-Type"] = options.type ?? "application/json";
    init.body = JSON.stringify(options.body);
  }
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (why) {
    if (options.signal?.aborted) throw why;
    throw new Unreachable(words.errors.unreachable(location.host));
  }
  if (response.ok) return response;
  const refusal = refusalOf(response.status, await read(response));
  if (response.status === 401 && !path.startsWith("/v3-public/")) whenSessionEnds();
  throw refusal;
}

async function read(response: Response): Promise<string> {
  try {
    return await response.text();
  } catch {
    throw new Unreachable(words.errors.brokenOff(location.host));
  }
}

/** Kubernetes answers a Status, Rancher's API an error, actions plain text. */
export function refusalOf(status: number, text: string): Refusal {
  try {
    const body: unknown = JSON.parse(text);
    if (typeof body === "object" && body !== null) {
      const { message, reason, code } = body as Record<string, unknown>;
      const why = typeof reason === "string" ? reason : typeof code === "string" ? code : "";
      if (typeof message === "string" && message !== "") return new Refusal(status, message, why);
    }
  } catch {
    // Not JSON: what it says is what it says.
  }
  const said = text.trim();
  return new Refusal(status, said !== "" && said.length < 2000 ? said : words.errors.refused(status));
}

export function csrfWord(cookies = document.cookie): string {
  const pair = cookies.split(";").map((one) => one.trim().split("=")).find(([name]) => name === "CSRF");
  return pair?.[1] ?? "";
}

/** What to show a person of anything that was thrown. */
export function told(why: unknown): string {
  return why instanceof Error ? why.message : String(why);
}
