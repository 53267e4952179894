import { describe, expect, it } from "vitest";

import { words } from "@/words";

import { effectOf, formOf, groupOf, isSet, laidOut, type Setting, shownOf, spaced, wrongJson } from "./setting";

function setting(name: string, standard: string, value?: string, condition?: { status: string; reason?: string }): Setting {
  return {
    id: name,
    type: "harvesterhci.io.setting",
    apiVersion: "harvesterhci.io/v1beta1",
    kind: "Setting",
    links: {},
    metadata: { name, uid: "1", resourceVersion: "1", creationTimestamp: "" },
    spec: undefined,
    default: standard,
    ...(value === undefined ? {} : { value }),
    ...(condition ? { status: { conditions: [{ type: "configured", ...condition }] } } : {}),
  };
}

describe("a setting", () => {
  it("has the form that fits what it may be", () => {
    expect(formOf(setting("upgrade-checker-enabled", "true"))).toBe("boolean");
    expect(formOf(setting("log-level", "info"))).toBe("choice");
    expect(formOf(setting("http-proxy", "{}"))).toBe("json");
    expect(formOf(setting("storage-network", ""))).toBe("json");
    expect(formOf(setting("max-hotplug-ratio", "4"))).toBe("number");
    expect(formOf(setting("additional-guest-memory-overhead-ratio", "1.5"))).toBe("number");
    expect(formOf(setting("additional-ca", ""))).toBe("lines");
    expect(formOf(setting("release-download-url", "https://a"))).toBe("text");
  });

  it("is set when it differs from what holds anyway", () => {
    expect(isSet(setting("a", "1"))).toBe(false);
    expect(isSet(setting("a", "1", ""))).toBe(false);
    expect(isSet(setting("a", "1", "1"))).toBe(false);
    expect(isSet(setting("a", "1", "2"))).toBe(true);
  });

  it("never shows a secret", () => {
    const proxy = '{"httpProxy":"http://jo:very-secret@proxy:3128","noProxy":"a"}';
    const shown = shownOf(setting("http-proxy", "{}", proxy));
    expect(shown.text).toContain("http://jo:•••@proxy:3128");
    expect(shown.isWhole).toBe(false);
    expect(shownOf(setting("x", "", '{"Password": "a\\"b", "name": "c"}')).text).toBe('{"Password": "•••", "name": "c"}');
    expect(shownOf(setting("ssl-certificates", "{}", '{"ca":"x"}'))).toEqual({ text: words.settings.hidden, isWhole: false });
    expect(shownOf(setting("ssl-certificates", "{}"))).toEqual({ text: "{}", isWhole: true });
    expect(shownOf(setting("ui-index", "https://a/b:c"))).toEqual({ text: "https://a/b:c", isWhole: true });
  });

  it("says what is wrong with JSON and lays it out", () => {
    expect(wrongJson('{"a": 1}')).toBe("");
    expect(wrongJson("")).toBe("");
    expect(wrongJson('{"a": }')).not.toBe("");
    expect(laidOut('{"a":1}')).toBe('{\n  "a": 1\n}');
    expect(laidOut("{")).toBe("{");
  });

  it("breaks JSON between its words, and leaves alone what is none", () => {
    expect(spaced('{"a":1,"b":["c","d:e"]}')).toBe('{ "a": 1, "b": [ "c", "d:e" ] }');
    expect(spaced("10.0.0.1:53,10.0.0.2:53")).toBe("10.0.0.1:53,10.0.0.2:53");
    expect(spaced("{")).toBe("{");
  });

  it("says whether it acts", () => {
    expect(effectOf(setting("a", "", "", { status: "True" })).text).toBe(words.settings.acts);
    expect(effectOf(setting("a", "", "x", { status: "False", reason: "NoEffectYet" }))).toMatchObject({ text: words.settings.idle, tone: "warn" });
    expect(effectOf(setting("a", "", "", { status: "Unknown", reason: "NoEffectYet" })).tone).toBe("quiet");
    expect(effectOf(setting("a", "", "x", { status: "False", reason: "Error" })).tone).toBe("bad");
    expect(effectOf(setting("a", "")).text).toBe(words.common.unknown);
  });

  it("belongs to one group", () => {
    const expected = { "support-bundle-timeout": "support", "vm-migration-network": "network", "vm-force-reset-policy": "machines", "volume-snapshot-class": "storage", "ui-index": "console", "upgrade-config": "upgrades", "harvester-csi-ccm-versions": "access", "log-level": "others", "brand-new": "others" };
    for (const [name, group] of Object.entries(expected)) expect(groupOf(name), name).toBe(group);
  });
});
