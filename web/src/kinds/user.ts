// People who sign in, and what they may: roles that are bound to their names and to the groups they are in.

import type { Thing } from "@/api/objects";
import { types } from "@/api/objects";
import { words } from "@/words";

export interface User extends Thing<undefined> {
  username?: string;
  displayName?: string;
  description?: string;
  enabled?: boolean;
  mustChangePassword?: boolean;
  groups?: string[] | null;
}

export interface Subject {
  kind: string;
  name: string;
  namespace?: string;
  apiGroup?: string;
}

export interface Binding extends Thing<undefined> {
  roleRef: { apiGroup: string; kind: string; name: string };
  subjects?: Subject[] | null;
}

/** One role that somebody has, and by what. */
export interface Grant {
  key: string;
  role: string;
  isOfNamespace: boolean;
  /** Empty is everywhere. */
  namespace: string;
  subject: Subject;
  binding: Binding;
}

export const roles = ["view", "edit", "admin", "cluster-admin"] as const;

/** Of the roles that everybody should know; of others, their names have to say it. */
export const roleHint = (role: string): string => (words.users.roleHints as Record<string, string>)[role] ?? "";

const RBAC = "rbac.authorization.k8s.io";

export const isEnabled = (user: User) => user.enabled !== false;

export function grantsOf(user: User, bindings: readonly Binding[]): Grant[] {
  const groups = user.groups ?? [];
  const isMine = (subject: Subject) =>
    (subject.kind === "User" && subject.name === user.metadata.name) || (subject.kind === "Group" && groups.includes(subject.name));
  return bindings
    .flatMap((binding) =>
      (binding.subjects ?? []).filter(isMine).map((subject) => ({
        key: `${binding.type}/${binding.id}/${subject.kind}/${subject.name}`,
        role: binding.roleRef.name,
        isOfNamespace: binding.roleRef.kind === "Role",
        namespace: binding.metadata.namespace ?? "",
        subject,
        binding,
      })),
    )
    .sort((one, other) => one.namespace.localeCompare(other.namespace) || one.role.localeCompare(other.role));
}

/** The binding that gives a role to a user or a group; without a namespace it is given everywhere. */
export function bindingFor(subject: { kind: "User" | "Group"; name: string }, role: string, namespace: string) {
  const type = namespace === "" ? types.clusterRoleBinding : types.roleBinding;
  return {
    type,
    apiVersion: `${RBAC}/v1`,
    kind: namespace === "" ? "ClusterRoleBinding" : "RoleBinding",
    // A group's name may have what no object's name has.
    metadata: { generateName: `${subject.name.toLowerCase().replace(/[^a-z0-9-]+/g, "-").replace(/^-+/, "").slice(0, 40) || "group"}-${role}-`, ...(namespace === "" ? {} : { namespace }) },
    roleRef: { apiGroup: RBAC, kind: "ClusterRole", name: role },
    subjects: [{ apiGroup: RBAC, kind: subject.kind, name: subject.name }],
  };
}

/** What is left of a binding without one of its subjects; nothing if that was the last. */
export function without(grant: Grant): Subject[] | undefined {
  const left = (grant.binding.subjects ?? []).filter((one) => one.kind !== grant.subject.kind || one.name !== grant.subject.name);
  return left.length === 0 ? undefined : left;
}

export const namesIn = (text: string) => [...new Set(text.split(/[\s,]+/).filter((one) => one !== ""))];

/** Letters and digits that are not mistaken for one another: 20 of 55 are more than 115 bits. */
const LETTERS = "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";

export function freshPassword(random: (bytes: Uint8Array) => Uint8Array = (bytes) => crypto.getRandomValues(bytes)): string {
  let password = "";
  while (password.length < 20) {
    for (const byte of random(new Uint8Array(40))) {
      // Each letter as likely as any other.
      if (byte < Math.floor(256 / LETTERS.length) * LETTERS.length && password.length < 20) password += LETTERS[byte % LETTERS.length];
    }
  }
  return password.replace(/(.{5})(?=.)/g, "$1-");
}
