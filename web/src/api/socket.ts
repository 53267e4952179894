// The one WebSocket over which the server tells what changes, and what is subscribed to on it.
//
// When it breaks it is opened again, at longer and longer intervals; who subscribed is told that it broke and that it is back,
// and begins anew: what was missed in between is in no event.

import { ref } from "vue";

/** Milliseconds. */
const FIRST_WAIT = 300;
const LONGEST_WAIT = 10_000;
/** The server says every half minute that it is there. */
const SILENCE = 75_000;

export interface Wish {
  resourceType: string;
  namespace?: string;
  id?: string;
  selector?: string;
}

export interface Said {
  name: string;
  resourceType?: string;
  namespace?: string;
  id?: string;
  selector?: string;
  /** The version that an event is about. */
  revision?: string;
  data?: unknown;
}

export interface Listener {
  /** The connection is there: what stands has to be asked for, and then listened to from there. */
  begin(): void;
  hear(said: Said): void;
}

export type Connection = "closed" | "connecting" | "open" | "lost";

type Opener = (address: string) => WebSocket;

const keyOf = (one: Wish | Said) => [one.resourceType, one.namespace, one.id, one.selector].map((part) => part ?? "").join("|");

export class Subscriptions {
  readonly connection = ref<Connection>("closed");
  private readonly listeners = new Map<string, { wish: Wish; listener: Listener }>();
  /** What the server was asked for on this connection and has not ended. */
  private readonly asked = new Set<string>();
  /** Ends that we asked for and that the server has yet to confirm: they are not the ends of what was asked for since. */
  private readonly ending = new Map<string, number>();
  private socket: WebSocket | undefined;
  private wait = FIRST_WAIT;
  private again: ReturnType<typeof setTimeout> | undefined;
  private watchdog: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly address: () => string,
    private readonly open: Opener = (address) => new WebSocket(address),
    /** Asked before the connection is opened once more: whether there is still somebody to open it for. */
    private readonly isStillWanted: () => Promise<boolean> = () => Promise.resolve(true),
  ) {}

  /** Until what is answered is called. */
  add(wish: Wish, listener: Listener): () => void {
    const key = keyOf(wish);
    this.listeners.set(key, { wish, listener });
    if (this.socket === undefined) this.connect();
    else if (this.connection.value === "open") listener.begin();
    return () => {
      if (this.listeners.get(key)?.listener !== listener) return;
      this.listeners.delete(key);
      this.stop(wish);
      if (this.listeners.size === 0) this.close();
    };
  }

  /** Asks for events after a version that was listed. */
  listen(wish: Wish, resourceVersion: string) {
    this.stop(wish);
    if (this.send({ ...wish, resourceVersion })) this.asked.add(keyOf(wish));
  }

  /** No more events of what was asked for; those on their way are heard as they come. */
  stop(wish: Wish) {
    const key = keyOf(wish);
    if (!this.asked.delete(key)) return;
    this.send({ ...wish, stop: true });
    this.ending.set(key, (this.ending.get(key) ?? 0) + 1);
  }

  close() {
    clearTimeout(this.again);
    clearTimeout(this.watchdog);
    this.again = undefined;
    const socket = this.socket;
    this.socket = undefined;
    this.startOver();
    socket?.close();
    this.connection.value = "closed";
    this.wait = FIRST_WAIT;
  }

  /** The browser says that the network is there again, or the page is looked at again. */
  hurry() {
    if (this.connection.value !== "lost" || this.listeners.size === 0 || this.socket !== undefined) return;
    this.wait = FIRST_WAIT;
    this.connect();
  }

  /** The browser says that the network is gone: a connection without one says nothing by itself. */
  breakOff() {
    if (this.socket !== undefined) this.lost(this.socket);
  }

  private connect() {
    clearTimeout(this.again);
    this.again = undefined;
    this.connection.value = this.connection.value === "closed" ? "connecting" : "lost";
    const socket = this.open(this.address());
    this.socket = socket;
    this.listenForLife(socket);
    socket.onopen = () => {
      if (this.socket !== socket) return;
      this.wait = FIRST_WAIT;
      this.connection.value = "open";
      for (const { listener } of [...this.listeners.values()]) listener.begin();
    };
    socket.onmessage = (message: MessageEvent<string>) => {
      if (this.socket !== socket) return;
      this.listenForLife(socket);
      const said = JSON.parse(message.data) as Said;
      if (said.name === "resource.stop" && this.isExpected(said)) return;
      this.listeners.get(keyOf(said))?.listener.hear(said);
    };
    socket.onclose = () => this.lost(socket);
  }

  private lost(socket: WebSocket) {
    if (this.socket !== socket) return;
    clearTimeout(this.watchdog);
    socket.onopen = socket.onmessage = socket.onclose = null;
    this.startOver();
    socket.close();
    this.connection.value = "lost";
    this.socket = undefined;
    // Not all clients at once, when it was the server that went.
    const wait = this.wait * (0.5 + Math.random() / 2);
    this.wait = Math.min(this.wait * 2, LONGEST_WAIT);
    clearTimeout(this.again);
    this.again = setTimeout(() => void this.tryAgain(), wait);
  }

  private async tryAgain() {
    const wanted = await this.isStillWanted();
    if (this.socket !== undefined || this.listeners.size === 0) return;
    if (wanted) this.connect();
  }

  private listenForLife(socket: WebSocket) {
    clearTimeout(this.watchdog);
    this.watchdog = setTimeout(() => this.lost(socket), SILENCE);
  }

  private isExpected(said: Said): boolean {
    const key = keyOf(said);
    const count = this.ending.get(key) ?? 0;
    if (count > 0) this.ending.set(key, count - 1);
    else this.asked.delete(key);
    return count > 0;
  }

  private startOver() {
    this.asked.clear();
    this.ending.clear();
  }

  /** Whether there was anybody to send it to. */
  private send(message: object): boolean {
    if (this.socket === undefined || this.connection.value !== "open") return false;
    this.socket.send(JSON.stringify(message));
    return true;
  }
}
