// What of a host is promised to the machines that run on it.

import { cpusOf, type Instance, memoryOf, nodeOf } from "@/kinds/virtual-machine";

export interface Use {
  machines: number;
  cpus: number;
  memory: number;
}

/** An instance says as much of its processors and its memory as the machine it is of. */
const asMachine = (instance: Instance) => ({ spec: { template: { spec: instance.spec } } });

const isOver = (instance: Instance) => ["Succeeded", "Failed"].includes(instance.status?.phase ?? "");

export const machinesOn = (name: string, instances: readonly Instance[]) => instances.filter((one) => nodeOf(one) === name && !isOver(one));

export function useOf(name: string, instances: readonly Instance[]): Use {
  const here = machinesOn(name, instances);
  return {
    machines: here.length,
    cpus: here.reduce((sum, one) => sum + cpusOf(asMachine(one)), 0),
    memory: here.reduce((sum, one) => sum + (memoryOf(asMachine(one)) ?? 0), 0),
  };
}
