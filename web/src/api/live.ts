// What the pages look at: collections that several of them may share.

import { type ComputedRef, computed, onScopeDispose, type Ref, shallowRef, toValue, type MaybeRefOrGetter, watch } from "vue";

import { Collection, type Standing } from "./collection";
import type { Thing } from "./objects";
import { isSignedIn, look } from "./session";
import { Subscriptions, type Wish } from "./socket";

const address = () => `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/v1/subscribe`;

/** A connection that is refused says nothing of why. Nobody being signed in any more is one reason, and trying on is no cure. */
async function isStillSignedIn() {
  try {
    await look();
  } catch {
    return true;
  }
  return isSignedIn.value;
}

export const subscriptions = new Subscriptions(address, undefined, isStillSignedIn);

/** Kept for a while after the last page left it: whoever comes back sees at once what was there. */
const collections = new Map<string, Collection>();
const KEPT = 30;

export function collection<T extends Thing>(wish: Wish): Collection<T> {
  const key = JSON.stringify([wish.resourceType, wish.namespace ?? "", wish.id ?? "", wish.selector ?? ""]);
  let known = collections.get(key);
  if (known === undefined) {
    known = new Collection(wish, subscriptions);
    collections.set(key, known);
    for (const [other, one] of collections) {
      if (collections.size <= KEPT) break;
      if (other !== key && !one.isUsed) collections.delete(other);
    }
  }
  return known as unknown as Collection<T>;
}

/** Nothing of what one person saw is shown to the next. */
export function forget() {
  subscriptions.close();
  collections.clear();
}

export interface Seen<T> {
  all: ComputedRef<T[]>;
  byId: ComputedRef<ReadonlyMap<string, T>>;
  standing: ComputedRef<Standing>;
  failure: ComputedRef<string>;
  mayCreate: ComputedRef<boolean>;
}

/** For as long as the component is there. */
export function useCollection<T extends Thing>(wish: MaybeRefOrGetter<Wish>): Seen<T> {
  const current: Ref<Collection<T> | undefined> = shallowRef();
  let leave = () => {};
  const enter = (now: Wish) => {
    const before = leave;
    current.value = collection<T>(now);
    leave = current.value.use();
    before();
  };
  watch(
    () => JSON.stringify(toValue(wish)),
    (text) => enter(JSON.parse(text) as Wish),
    { immediate: true },
  );
  onScopeDispose(() => leave());
  return {
    all: computed(() => current.value?.all.value ?? []),
    byId: computed(() => current.value?.byId.value ?? new Map()),
    standing: computed(() => current.value?.standing.value ?? "loading"),
    failure: computed(() => current.value?.failure.value ?? ""),
    mayCreate: computed(() => current.value?.mayCreate.value ?? false),
  };
}

/** One object, kept true. */
export function useThing<T extends Thing>(wish: MaybeRefOrGetter<{ resourceType: string; id: string }>) {
  const seen = useCollection<T>(wish);
  return {
    thing: computed(() => seen.byId.value.get(toValue(wish).id)),
    standing: seen.standing,
    failure: seen.failure,
  };
}

/** The browser knows first when the network goes and comes back. */
export function listenToBrowser() {
  addEventListener("offline", () => subscriptions.breakOff());
  addEventListener("online", () => subscriptions.hurry());
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") subscriptions.hurry();
  });
}
