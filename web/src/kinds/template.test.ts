import { expect, it } from "vitest";

import { imagesOf, isDefault, readyOf, type Template, type Version, versionsOf } from "./template";

const version = (id: string, templateId: string, number: number, claims?: string) =>
  ({ id, spec: { templateId, vm: { metadata: claims === undefined ? {} : { annotations: { "harvesterhci.io/volumeClaimTemplates": claims } } } }, status: { version: number } }) as unknown as Version;

it("a template has its own versions, the newest first, and one that is meant", () => {
  const template = { id: "a/web", spec: { defaultVersionId: "a/one" } } as unknown as Template;
  const all = [version("a/one", "a/web", 1), version("a/other", "a/db", 3), version("a/two", "a/web", 2)];
  expect(versionsOf(template, all).map((one) => one.id)).toEqual(["a/two", "a/one"]);
  expect(versionsOf(template, all).map((one) => isDefault(template, one))).toEqual([false, true]);
});

it("a version says which images it needs", () => {
  const claims = JSON.stringify([{ metadata: { annotations: { "harvesterhci.io/imageId": "a/debian" } } }, { metadata: { name: "data" } }, { metadata: { annotations: { "harvesterhci.io/imageId": "" } } }]);
  expect(imagesOf(version("v", "t", 1, claims))).toEqual(["a/debian"]);
  expect(imagesOf(version("v", "t", 1, "not json"))).toEqual([]);
  expect(readyOf(version("v", "t", 1))).toBeUndefined();
});
