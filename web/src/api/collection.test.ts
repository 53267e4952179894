import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { Collection } from "./collection";
import { Refusal, Unreachable } from "./http";
import type { Thing } from "./objects";
import { Subscriptions } from "./socket";

class FakeSocket {
  static all: FakeSocket[] = [];
  sent: { resourceType: string; resourceVersion?: string; stop?: boolean }[] = [];
  onopen: (() => void) | null = null;
  onclose: (() => void) | null = null;
  onmessage: ((message: { data: string }) => void) | null = null;
  isClosed = false;

  constructor() {
    FakeSocket.all.push(this);
  }

  send(text: string) {
    this.sent.push(JSON.parse(text));
  }

  close() {
    this.isClosed = true;
  }

  says(name: string, thing?: Partial<Thing>) {
    this.onmessage?.({ data: JSON.stringify({ name, resourceType: "node", data: thing }) });
  }
}

const last = () => FakeSocket.all.at(-1) as FakeSocket;

function thing(name: string, version: string): Thing {
  return { id: name, type: "node", apiVersion: "v1", kind: "Node", links: {}, metadata: { name, uid: name, resourceVersion: version, creationTimestamp: "" }, spec: {} };
}

function setUp(list: () => Promise<{ data: Thing[]; revision: string }>) {
  const subscriptions = new Subscriptions(() => "wss://x", () => new FakeSocket() as unknown as WebSocket);
  const collection = new Collection({ resourceType: "node" }, subscriptions, list);
  const names = () => collection.all.value.map((one) => `${one.metadata.name}@${one.metadata.resourceVersion}`).sort();
  return { subscriptions, collection, names };
}

const settle = () => vi.advanceTimersByTimeAsync(150);

describe("a collection", () => {
  beforeEach(() => {
    vi.useFakeTimers();
    FakeSocket.all = [];
  });
  afterEach(() => void vi.useRealTimers());

  it("is listed, and from that version on told what changes", async () => {
    const { collection, names } = setUp(() => Promise.resolve({ data: [thing("a", "1")], revision: "7" }));
    collection.use();
    last().onopen?.();
    await settle();
    expect(collection.standing.value).toBe("live");
    expect(last().sent).toEqual([{ resourceType: "node", resourceVersion: "7" }]);
    last().says("resource.create", thing("b", "8"));
    last().says("resource.change", thing("a", "9"));
    await settle();
    expect(names()).toEqual(["a@9", "b@8"]);
    last().says("resource.remove", thing("a", "10"));
    await settle();
    expect(names()).toEqual(["b@8"]);
  });

  it("is listed anew when the connection was lost, so that nothing that was missed is missing", async () => {
    let listed = { data: [thing("a", "1"), thing("b", "2")], revision: "2" };
    const { collection, names, subscriptions } = setUp(() => Promise.resolve(listed));
    collection.use();
    last().onopen?.();
    await settle();
    const kept = collection.byId.value.get("b");
    last().onclose?.();
    expect(subscriptions.connection.value).toBe("lost");
    listed = { data: [thing("b", "2"), thing("c", "9")], revision: "9" };
    await vi.advanceTimersByTimeAsync(1000);
    expect(FakeSocket.all).toHaveLength(2);
    last().onopen?.();
    await settle();
    expect(names()).toEqual(["b@2", "c@9"]);
    expect(collection.byId.value.get("b")).toBe(kept);
    expect(last().sent).toEqual([{ resourceType: "node", resourceVersion: "9" }]);
  });

  it("hears nothing more from a connection that was given up", async () => {
    const { collection, names } = setUp(() => Promise.resolve({ data: [], revision: "1" }));
    collection.use();
    last().onopen?.();
    await settle();
    const old = last();
    const { onmessage } = old;
    old.onclose?.();
    await vi.advanceTimersByTimeAsync(1000);
    last().onopen?.();
    await settle();
    onmessage?.({ data: JSON.stringify({ name: "resource.create", resourceType: "node", data: thing("ghost", "5") }) });
    await settle();
    expect(names()).toEqual([]);
  });

  it("goes on trying what cannot be reached, and gives up what is refused", async () => {
    let answer: () => Promise<{ data: Thing[]; revision: string }> = () => Promise.reject(new Unreachable("away"));
    const { collection } = setUp(() => answer());
    collection.use();
    last().onopen?.();
    await settle();
    expect([collection.standing.value, collection.failure.value]).toEqual(["loading", "away"]);
    answer = () => Promise.resolve({ data: [thing("a", "1")], revision: "1" });
    await vi.advanceTimersByTimeAsync(1000);
    expect(collection.standing.value).toBe("live");
    answer = () => Promise.reject(new Refusal(403, "not yours"));
    last().says("resource.stop");
    await vi.advanceTimersByTimeAsync(5000);
    expect([collection.standing.value, collection.failure.value]).toEqual(["failed", "not yours"]);
  });

  it("is listed anew when its watch ends, and left alone when nobody looks", async () => {
    const list = vi.fn(() => Promise.resolve({ data: [], revision: "1" }));
    const { collection, subscriptions } = setUp(list);
    const leave = collection.use();
    last().onopen?.();
    await settle();
    last().says("resource.stop");
    await vi.advanceTimersByTimeAsync(1000);
    expect(list).toHaveBeenCalledTimes(2);
    leave();
    expect(last().sent.at(-1)).toMatchObject({ stop: true });
    expect(subscriptions.connection.value).toBe("closed");
    await vi.advanceTimersByTimeAsync(60_000);
    expect(list).toHaveBeenCalledTimes(2);
  });

  it("takes a silent connection for a lost one", async () => {
    const { collection, subscriptions } = setUp(() => Promise.resolve({ data: [], revision: "1" }));
    collection.use();
    last().onopen?.();
    await vi.advanceTimersByTimeAsync(60_000);
    last().onmessage?.({ data: '{"name":"ping"}' });
    await vi.advanceTimersByTimeAsync(60_000);
    expect(subscriptions.connection.value).toBe("open");
    await vi.advanceTimersByTimeAsync(20_000);
    expect(subscriptions.connection.value).toBe("lost");
  });
});

describe("a collection that is left and entered again", () => {
  beforeEach(() => {
    vi.useFakeTimers();
    FakeSocket.all = [];
  });
  afterEach(() => void vi.useRealTimers());

  it("does not take the end of what it left for the end of what it entered", async () => {
    const list = vi.fn(() => Promise.resolve({ data: [], revision: "1" }));
    const { collection, subscriptions } = setUp(list);
    subscriptions.add({ resourceType: "other" }, { begin: () => {}, hear: () => {} });
    const leave = collection.use();
    last().onopen?.();
    await settle();
    leave();
    collection.use();
    await settle();
    last().says("resource.stop");
    await vi.advanceTimersByTimeAsync(60_000);
    expect(list).toHaveBeenCalledTimes(2);
    last().says("resource.stop");
    await vi.advanceTimersByTimeAsync(1000);
    expect(list).toHaveBeenCalledTimes(3);
  });

  it("keeps what it hears while it is listed, and nothing that is older than the list", async () => {
    let answer: (listed: { data: Thing[]; revision: string }) => void = () => {};
    const { collection, names } = setUp(() => new Promise((resolve) => (answer = resolve)));
    collection.use();
    last().onopen?.();
    answer({ data: [thing("a", "1")], revision: "1" });
    await settle();
    collection.begin();
    const heard = (name: string, one: Thing) =>
      last().onmessage?.({ data: JSON.stringify({ name, resourceType: "node", revision: one.metadata.resourceVersion, data: one }) });
    heard("resource.change", thing("a", "9"));
    heard("resource.create", thing("b", "3"));
    heard("resource.remove", thing("c", "8"));
    answer({ data: [thing("a", "5"), thing("b", "4"), thing("c", "4")], revision: "6" });
    await settle();
    expect(names()).toEqual(["a@9", "b@4"]);
    heard("resource.change", thing("a", "7"));
    await settle();
    expect(names()).toEqual(["a@9", "b@4"]);
  });

  it("lists seldom what may be listed and not watched", async () => {
    const list = vi.fn(() => Promise.resolve({ data: [], revision: "1" }));
    const { collection } = setUp(list);
    collection.use();
    last().onopen?.();
    for (let second = 0; second < 120; second += 1) {
      await vi.advanceTimersByTimeAsync(1000);
      const asked = last().sent.filter((one) => !one.stop).length;
      if (asked > second) last().says("resource.stop");
    }
    expect(list.mock.calls.length).toBeLessThan(20);
  });

  it("opens no second connection while one is being opened", async () => {
    const { collection, subscriptions } = setUp(() => Promise.resolve({ data: [], revision: "1" }));
    collection.use();
    last().onopen?.();
    last().onclose?.();
    await vi.advanceTimersByTimeAsync(1000);
    expect(FakeSocket.all).toHaveLength(2);
    subscriptions.hurry();
    subscriptions.hurry();
    expect(FakeSocket.all).toHaveLength(2);
  });
});
