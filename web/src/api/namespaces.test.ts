import { beforeEach, expect, it } from "vitest";

import { learn, namespace, namespaceForNew } from "./namespaces";

beforeEach(() => {
  namespace.value = "";
  learn([]);
});

it("puts something new where whoever makes it may see it", () => {
  expect(namespaceForNew()).toBe("default");
  learn(["web", "default"]);
  expect(namespaceForNew()).toBe("default");
  learn(["harvester-public", "web", "kube-system", "api"]);
  expect(namespaceForNew()).toBe("api");
  namespace.value = "web";
  expect(namespaceForNew()).toBe("web");
});

it("forgets a choice of somebody who saw more", () => {
  namespace.value = "web";
  learn(["default"]);
  expect(namespace.value).toBe("");
});
