// The audit log, kept true: what there is, the newest first, then what comes, over one answer that does not end.
//
// When that breaks it is asked for again from where it was: nothing is missed and nothing is asked for twice. Only when the log has
// gone on so far that the place is gone, it is begun anew.

import { onScopeDispose, ref, shallowRef, toValue, watch, type MaybeRefOrGetter } from "vue";

import { type AuditLine, keyOf } from "@/kinds/audit";

import { get, Refusal, send, told } from "./http";

const PLACE = "/audit/events";
/** Lines that the first look gathers, and each further one. */
const PAGE = 100;
/** Answers that may have to be asked for to find them: each looks at some megabytes of the log. */
const ANSWERS = 16;
/** Lines that are kept. */
const MOST = 5000;
const FIRST_WAIT = 500;
const LONGEST_WAIT = 10_000;
/** The server says every ten seconds that it is there. */
const SILENCE = 35_000;

interface Page {
  metadata: { continue?: string; resourceVersion: string };
  items: AuditLine[];
}

interface Said {
  type: "ADDED" | "BOOKMARK" | "ERROR";
  object: AuditLine & { metadata?: { resourceVersion?: string }; message?: string; reason?: string; code?: number };
}

export type Asked = Record<string, string>;
export type AuditStanding = "loading" | "live" | "lost" | "off" | "failed";

function address(asked: Asked, more: Asked): string {
  const filters = Object.entries(asked).filter(([, value]) => value !== "");
  return `${PLACE}?${new URLSearchParams({ ...Object.fromEntries(filters), ...more })}`;
}

/** One line by its key, if it is still there. Its id alone would not do: whoever asks chooses that, and may choose another's. */
export async function lineOf(key: string): Promise<AuditLine | undefined> {
  const id = key.split(" ").slice(0, -2).join(" ");
  let from: Asked = {};
  for (let answer = 0; answer < 4 * ANSWERS; answer += 1) {
    const page = await get<Page>(address({ id }, { ...from, limit: String(PAGE) }));
    const found = page.items.find((line) => keyOf(line) === key);
    if (found) return found;
    if (page.metadata.continue === undefined) return undefined;
    from = { continue: page.metadata.continue };
  }
  return undefined;
}

/** For as long as the component is there. */
export function useAudit(asked: MaybeRefOrGetter<Asked>) {
  const lines = shallowRef<AuditLine[]>([]);
  const standing = ref<AuditStanding>("loading");
  const failure = ref("");
  /** Where there may be older ones. */
  const further = ref<string>();
  const isLooking = ref(false);
  let current = new AbortController();

  /** Gathers a page of lines before `from`, or the newest. */
  async function gather(from: string | undefined, mine: AbortController): Promise<string> {
    let newest = "";
    let found = 0;
    let next = from;
    isLooking.value = true;
    try {
      for (let answer = 0; answer < ANSWERS; answer += 1) {
        const page = await get<Page>(address(toValue(asked), { limit: String(PAGE), ...(next === undefined ? {} : { continue: next }) }), mine.signal);
        if (mine.signal.aborted) return newest;
        if (newest === "") newest = page.metadata.resourceVersion;
        lines.value = [...lines.value, ...page.items].slice(0, MOST);
        found += page.items.length;
        next = page.metadata.continue;
        if (next === undefined || found >= PAGE) break;
      }
    } finally {
      if (!mine.signal.aborted) isLooking.value = false;
    }
    further.value = lines.value.length < MOST ? next : undefined;
    return newest;
  }

  function hear(said: Said): string | undefined {
    if (said.type === "BOOKMARK") return said.object.metadata?.resourceVersion;
    if (said.type === "ERROR") throw new Refusal(said.object.code ?? 500, said.object.message ?? "", said.object.reason ?? "");
    if (!lines.value.some((line) => keyOf(line) === keyOf(said.object))) lines.value = [said.object, ...lines.value].slice(0, MOST);
    return undefined;
  }

  /** Until it breaks off or is ended by the server, which then is asked again from `place` on. */
  async function follow(from: string, mine: AbortController, reached: (place: string) => void) {
    const silence = new AbortController();
    const signal = AbortSignal.any([mine.signal, silence.signal]);
    let watchdog: ReturnType<typeof setTimeout> | undefined;
    const isAlive = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => silence.abort(), SILENCE);
    };
    isAlive();
    try {
      const answer = await send("GET", address(toValue(asked), { watch: "true", resourceVersion: from }), { signal, patience: Infinity });
      const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const piece = await reader?.read();
        if (!piece || piece.done) return;
        isAlive();
        standing.value = "live";
        const whole = (text + piece.value).split("\n");
        text = whole.pop() ?? "";
        for (const line of whole) {
          const place = line === "" ? undefined : hear(JSON.parse(line) as Said);
          if (place !== undefined) reached(place);
        }
      }
    } finally {
      clearTimeout(watchdog);
    }
  }

  async function run(mine: AbortController) {
    let place = "";
    let wait = FIRST_WAIT;
    while (!mine.signal.aborted) {
      try {
        if (place === "") {
          lines.value = [];
          place = await gather(undefined, mine);
        }
        await follow(place, mine, (now) => {
          place = now;
          wait = FIRST_WAIT;
        });
      } catch (why) {
        if (mine.signal.aborted) return;
        if (why instanceof Refusal && why.status === 410) place = "";
        else if (why instanceof Refusal && why.status < 500 && why.status !== 429) {
          standing.value = why.status === 404 ? "off" : "failed";
          failure.value = told(why);
          return;
        }
        standing.value = "lost";
      }
      await new Promise((resolve) => setTimeout(resolve, wait * (0.5 + Math.random() / 2)));
      wait = Math.min(wait * 2, LONGEST_WAIT);
    }
  }

  async function older() {
    if (further.value === undefined || isLooking.value) return;
    try {
      await gather(further.value, current);
    } catch (why) {
      if (current.signal.aborted) return;
      // What was gone back to is gone: there is nothing older any more.
      further.value = undefined;
      if (!(why instanceof Refusal && why.status === 410)) failure.value = told(why);
    }
  }

  watch(
    () => JSON.stringify(toValue(asked)),
    () => {
      current.abort();
      current = new AbortController();
      standing.value = "loading";
      failure.value = "";
      further.value = undefined;
      void run(current);
    },
    { immediate: true },
  );
  onScopeDispose(() => current.abort());
  return { lines, standing, failure, further, isLooking, older };
}
