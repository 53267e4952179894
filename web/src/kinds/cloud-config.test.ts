import { describe, expect, it } from "vitest";

import { changed, type CloudConfig, newConfig, purposeOf, textOf, troubleOf } from "./cloud-config";

describe("a cloud config", () => {
  it("for users is a mapping, or says what else it is", () => {
    for (const fits of ["#cloud-config\npackages: [a]\n", "packages:\n  - a\n", "#!/bin/sh\necho: [", "## template: jinja\n#cloud-config\n{% if x %}\n"]) expect(troubleOf("user", fits), fits).toBeUndefined();
    expect(troubleOf("user", " \n")?.kind).toBe("empty");
    expect(troubleOf("user", "#cloud-config\na: [\n")?.kind).toBe("yaml");
    for (const odd of ["#cloud-config\n- a\n", "hello", "#cloud-config\n"]) expect(troubleOf("user", odd)?.kind, odd).toBe("mapping");
  });

  it("for networks says its version", () => {
    for (const fits of ["version: 2\nethernets: {}\n", "network:\n  version: 1\n  config: []\n"]) expect(troubleOf("network", fits), fits).toBeUndefined();
    for (const odd of ["ethernets: {}\n", "version: 3\n", "network: {}\n"]) expect(troubleOf("network", odd)?.kind, odd).toBe("version");
  });

  it("is found by its label, and changed without losing what else it holds", () => {
    const made = { ...newConfig("n", "default", "network", "version: 2"), id: "default/n", type: "configmap", links: {} } as unknown as CloudConfig;
    made.data = { ...made.data, other: "kept" };
    expect([purposeOf(made), textOf(made)]).toEqual(["network", "version: 2"]);
    expect(changed(made, "version: 1").data).toEqual({ cloudInit: "version: 1", other: "kept" });
    expect(changed(made, "x")).not.toHaveProperty("links");
  });
});
