import { expect, it } from "vitest";

import type { Instance } from "@/kinds/virtual-machine";

import { machinesOn, useOf } from "./use";

const instance = (nodeName: string, phase: string, cores: number, guest: string) =>
  ({ spec: { domain: { cpu: { cores, sockets: 2 }, memory: { guest }, devices: {} } }, status: { nodeName, phase } }) as unknown as Instance;

it("counts what runs on a host, and nothing that is over or elsewhere", () => {
  const all = [instance("n1", "Running", 2, "1Gi"), instance("n1", "Scheduled", 1, "512Mi"), instance("n1", "Succeeded", 8, "8Gi"), instance("n2", "Running", 8, "8Gi")];
  expect(machinesOn("n1", all)).toHaveLength(2);
  expect(useOf("n1", all)).toEqual({ machines: 2, cpus: 6, memory: 1.5 * 2 ** 30 });
});
