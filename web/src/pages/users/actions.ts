// What can be done with a user. Passwords and locking out go through Rancher's API, which ends what they are signed in with.

import { put, remove, told } from "@/api/http";
import { person } from "@/api/session";
import { isEnabled, type User } from "@/kinds/user";
import type { MenuItem } from "@/parts/ActionMenu.vue";
import { complain, say } from "@/parts/toasts";
import { words } from "@/words";

export const addressOfUser = (user: User) => `/v3/users/${encodeURIComponent(user.metadata.name)}`;
export const isOneself = (user: User) => user.metadata.name === person.value?.id;
export const nameOf = (user: User) => user.username || user.metadata.name;

export function menuOf(user: User): MenuItem[] {
  const items: MenuItem[] = [];
  if (user.links.update) items.push({ key: "edit", title: words.users.edit });
  // Nobody locks themselves out, and one's own password is changed with the old one.
  if (user.links.update && !isOneself(user)) {
    items.push({ key: "password", title: words.users.setPassword }, isEnabled(user) ? { key: "lock", title: words.users.lock } : { key: "unlock", title: words.users.unlock });
  }
  if (user.links.remove && !isOneself(user)) items.push({ key: "delete", title: words.common.delete, danger: true });
  return items;
}

export async function lock(user: User): Promise<void> {
  await put(addressOfUser(user), { enabled: false });
  say(words.users.locked(nameOf(user)));
}

export async function unlock(user: User): Promise<void> {
  try {
    await put(addressOfUser(user), { enabled: true });
    say(words.users.unlocked(nameOf(user)));
  } catch (why) {
    complain(words.common.failed(words.users.unlock, nameOf(user), told(why)));
  }
}

export async function removeUser(user: User): Promise<void> {
  await remove(addressOfUser(user));
  say(words.users.deleted(nameOf(user)));
}
