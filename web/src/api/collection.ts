// A collection that is kept true by events: listed once, and from then on told what changes.
//
//   loading --list--> live --connection lost--> stale --list again--> live
//                       \--refused--> failed
//
// Events come in bursts (a thousand machines start), so what they change is shown a few times a second and not at each.

import { computed, type ComputedRef, type Ref, ref, type ShallowRef, shallowRef } from "vue";

import { get, Refusal, told } from "./http";
import { addressOf, type Thing } from "./objects";
import type { Listener, Said, Subscriptions, Wish } from "./socket";

/** Milliseconds between two changes of what is shown. */
const PACE = 100;
/** And between two tries to list what cannot be listed. */
const FIRST_WAIT = 500;
const LONGEST_WAIT = 15_000;

export type Standing = "loading" | "live" | "stale" | "failed";

interface Listed<T> {
  data: T[] | null;
  revision: string;
  /** The types that may be made here, by whoever asks. */
  createTypes?: Record<string, string>;
}

export class Collection<T extends Thing = Thing> implements Listener {
  readonly standing: Ref<Standing> = ref("loading");
  /** Why it failed, or why it is stale. */
  readonly failure = ref("");
  /** Whether whoever looks may add to it. */
  readonly mayCreate = ref(false);
  /** By id. Another map after each change, with the same objects where nothing changed. */
  readonly byId: ShallowRef<ReadonlyMap<string, T>> = shallowRef(new Map());
  readonly all: ComputedRef<T[]> = computed(() => [...this.byId.value.values()]);

  /** Ahead of what is shown. */
  private things = new Map<string, T>();
  /** What was heard while a list was on its way: the list may be older than it. */
  private heard: Said[] = [];
  private users = 0;
  private remove: (() => void) | undefined;
  private listing: AbortController | undefined;
  private wait = FIRST_WAIT;
  private again: ReturnType<typeof setTimeout> | undefined;
  private shown: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly wish: Wish,
    private readonly subscriptions: Subscriptions,
    private readonly list: (path: string, signal: AbortSignal) => Promise<Listed<T>> = get,
  ) {}

  /** Somebody looks at it, until they call what is answered. */
  use(): () => void {
    this.users += 1;
    if (this.users === 1) this.remove = this.subscriptions.add(this.wish, this);
    let mine = true;
    return () => {
      if (!mine) return;
      mine = false;
      this.users -= 1;
      if (this.users === 0) this.rest();
    };
  }

  get isUsed() {
    return this.users > 0;
  }

  begin() {
    clearTimeout(this.again);
    if (this.standing.value === "live") this.standing.value = "stale";
    void this.load();
  }

  hear(said: Said) {
    switch (said.name) {
      case "resource.create":
      case "resource.change":
      case "resource.remove":
        if (this.listing) this.heard.push(said);
        this.wait = FIRST_WAIT;
        this.apply(said);
        return this.show();
      case "resource.start":
        this.wait = FIRST_WAIT;
        return;
      case "resource.error":
        this.failure.value = (said.data as { error?: string } | undefined)?.error ?? "";
        return;
      case "resource.stop":
        // Watches end by themselves, too: what was missed is found by listing.
        if (this.users > 0) this.retry();
    }
  }

  /** Nothing goes back: what is older than what is known changes nothing. */
  private apply(said: Said) {
    const thing = said.data as T;
    const known = this.things.get(thing.id);
    if (known !== undefined && isOlder(thing.metadata.resourceVersion, known.metadata.resourceVersion)) return;
    if (said.name === "resource.remove") this.things.delete(thing.id);
    else this.things.set(thing.id, thing);
  }

  private async load() {
    this.listing?.abort();
    const listing = new AbortController();
    this.listing = listing;
    this.heard = [];
    try {
      const listed = await this.list(this.path(), listing.signal);
      if (this.listing !== listing) return;
      this.listing = undefined;
      const before = this.things;
      const now = new Map<string, T>();
      for (const thing of listed.data ?? []) {
        const known = before.get(thing.id);
        now.set(thing.id, known !== undefined && isSame(known, thing) ? known : thing);
      }
      this.things = now;
      for (const said of this.heard) {
        if (isOlder(listed.revision, said.revision ?? "")) this.apply(said);
      }
      this.heard = [];
      this.byId.value = new Map(this.things);
      this.mayCreate.value = Object.keys(listed.createTypes ?? {}).length > 0;
      this.standing.value = "live";
      this.failure.value = "";
      this.subscriptions.listen(this.wish, listed.revision);
    } catch (why) {
      if (this.listing !== listing) return;
      this.listing = undefined;
      this.failure.value = told(why);
      // What nobody may list stays so; what is not served does, too.
      const isFinal = why instanceof Refusal && [401, 403, 404].includes(why.status);
      this.standing.value = isFinal ? "failed" : this.standing.value === "loading" ? "loading" : "stale";
      if (!isFinal) return this.retry();
      // Who may not see it any more does not go on seeing how it was.
      this.things = new Map();
      this.byId.value = new Map();
    }
  }

  private retry() {
    clearTimeout(this.again);
    this.again = setTimeout(() => this.begin(), this.wait);
    this.wait = Math.min(this.wait * 2, LONGEST_WAIT);
  }

  private show() {
    this.shown ??= setTimeout(() => {
      this.shown = undefined;
      this.byId.value = new Map(this.things);
    }, PACE);
  }

  private rest() {
    this.remove?.();
    this.remove = undefined;
    this.listing?.abort();
    this.listing = undefined;
    clearTimeout(this.again);
    if (this.standing.value === "live") this.standing.value = "stale";
  }

  private path(): string {
    const { resourceType, namespace, id, selector } = this.wish;
    const query = new URLSearchParams({ exclude: "metadata.managedFields" });
    if (selector) query.set("labelSelector", selector);
    if (!id) return `${addressOf(resourceType, namespace)}?${query}`;
    const [first, second] = id.split("/");
    const isNamespaced = second !== undefined;
    query.set("fieldSelector", `metadata.name=${isNamespaced ? second : first}`);
    return `${addressOf(resourceType, isNamespaced ? first : "")}?${query}`;
  }
}

/** Versions are numbers that grow; what is none is never older. */
function isOlder(one: string, other: string): boolean {
  return Number(one) < Number(other);
}

/** Also in what may be done with it, which depends on rights and on other objects. */
function isSame(one: Thing, other: Thing): boolean {
  const { metadata: here } = one;
  const { metadata: there } = other;
  const offers = (thing: Thing) => JSON.stringify([thing.actions, thing.links]);
  return here.resourceVersion === there.resourceVersion && here.uid === there.uid && offers(one) === offers(other);
}
