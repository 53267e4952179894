import { expect, it } from "vitest";

import { type Binding, bindingFor, freshPassword, grantsOf, namesIn, type Subject, type User, without } from "./user";

const user = { metadata: { name: "anna" }, groups: ["team"] } as unknown as User;

function binding(id: string, role: string, subjects: Subject[]): Binding {
  const [namespace, name] = id.includes("/") ? id.split("/") : [undefined, id];
  return { id, type: namespace ? "rb" : "crb", metadata: { name, namespace }, roleRef: { apiGroup: "", kind: "ClusterRole", name: role }, subjects } as unknown as Binding;
}

it("finds the roles of somebody, by name and by group, and nobody else's", () => {
  const anna = { kind: "User", name: "anna" };
  const all = [
    binding("web/a", "edit", [anna, { kind: "User", name: "bert" }]),
    binding("b", "view", [{ kind: "Group", name: "team" }]),
    binding("c", "view", [{ kind: "Group", name: "anna" }, { kind: "ServiceAccount", name: "anna" }]),
    binding("d", "view", []),
  ];
  const grants = grantsOf(user, all);
  expect(grants.map((one) => [one.namespace, one.role, one.subject.kind])).toEqual([["", "view", "Group"], ["web", "edit", "User"]]);
  expect(without(grants[1]!)).toEqual([{ kind: "User", name: "bert" }]);
  expect(without(grants[0]!)).toBeUndefined();
});

it("binds a role in a namespace or everywhere", () => {
  expect(bindingFor({ kind: "User", name: "anna" }, "edit", "web")).toMatchObject({ kind: "RoleBinding", metadata: { namespace: "web", generateName: "anna-edit-" } });
  const everywhere = bindingFor({ kind: "Group", name: "Team: A" }, "cluster-admin", "");
  expect(everywhere).toMatchObject({ kind: "ClusterRoleBinding", metadata: { generateName: "team-a-cluster-admin-" }, subjects: [{ kind: "Group", name: "Team: A" }] });
  expect("namespace" in everywhere.metadata).toBe(false);
});

it("reads names that people separate as they like", () => {
  expect(namesIn(" a, b  a,,c ")).toEqual(["a", "b", "c"]);
  expect(namesIn("")).toEqual([]);
});

it("makes passwords that are long, and not twice the same", () => {
  expect(freshPassword()).toMatch(/^[a-zA-Z2-9]{5}(-[a-zA-Z2-9]{5}){3}$/);
  expect(freshPassword()).not.toBe(freshPassword());
  const bytes = [255, 0];
  expect(freshPassword((room) => room.map((_, index) => bytes[index % 2] ?? 0))).toBe("aaaaa-aaaaa-aaaaa-aaaaa");
});
