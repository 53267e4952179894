// Who is signed in on this page.

import { computed, ref, shallowRef } from "vue";

import { ask, onSessionEnd, post, Refusal } from "./http";

export interface Person {
  id: string;
  username: string;
  name: string;
  mustChangePassword: boolean;
}

interface Users {
  data: { id: string; username: string; name?: string; mustChangePassword?: boolean }[];
}

export const person = shallowRef<Person>();
/** Somebody was signed in, and is no more, without having said so. */
export const hasExpired = ref(false);
export const isSignedIn = computed(() => person.value !== undefined);

onSessionEnd(() => {
  if (person.value === undefined) return;
  hasExpired.value = true;
  person.value = undefined;
});

/** Finds out whether this browser is signed in already. */
export async function look(): Promise<void> {
  try {
    const users = await ask<Users>("GET", "/v3/users?me=true", { patience: 15_000 });
    const me = users.data[0];
    person.value = me && {
      id: me.id,
      username: me.username,
      name: me.name || me.username,
      mustChangePassword: me.mustChangePassword === true,
    };
  } catch (why) {
    // A server that is busy or just starts refuses, too, and that says nothing about who is signed in.
    if (!(why instanceof Refusal) || why.status !== 401) throw why;
    person.value = undefined;
  }
}

/** The password that has to be changed at once, for the page that asks for it, so that nobody types it twice in a row. */
let typed = "";

export function takeTyped(): string {
  const taken = typed;
  typed = "";
  return taken;
}

export async function signIn(username: string, password: string): Promise<void> {
  const login = { username, password, responseType: "cookie", description: "console" };
  await post("/v3-public/localProviders/local?action=login", login);
  await look();
  typed = person.value?.mustChangePassword ? password : "";
  hasExpired.value = false;
}

export async function signOut(): Promise<void> {
  try {
    await post("/v3/tokens?action=logout");
  } finally {
    typed = "";
    person.value = undefined;
    hasExpired.value = false;
  }
}

/** A new password ends every session, this one too: it is begun again with the new one. */
export async function changePassword(currentPassword: string, newPassword: string): Promise<void> {
  const username = person.value?.username ?? "";
  await post("/v3/users?action=changepassword", { currentPassword, newPassword });
  await signIn(username, newPassword);
}
