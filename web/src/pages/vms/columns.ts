// The columns of the list of machines. A row is a machine and, while it runs, its instance.

import { addressesOf, cpusOf, type Instance, memoryOf, nodeOf, statusOf, type VirtualMachine } from "@/kinds/virtual-machine";
import { age, bytes } from "@/parts/quantity";
import type { Column } from "@/parts/table";
import { words } from "@/words";

export interface Row {
  vm: VirtualMachine;
  instance: Instance | undefined;
}

export function columns(withNamespace: boolean): Column<Row>[] {
  const all: (Column<Row> | false)[] = [
    { key: "name", title: words.common.name, value: ({ vm }) => vm.metadata.name },
    { key: "state", title: words.common.state, value: ({ vm }) => statusOf(vm), width: "130" },
    withNamespace && { key: "namespace", title: words.common.namespace, value: ({ vm }) => vm.metadata.namespace ?? "", width: "130", wideOnly: true },
    { key: "cpus", title: words.vms.cpus, value: ({ vm }) => cpusOf(vm), width: "76", align: "end", wideOnly: true },
    { key: "memory", title: words.vms.memory, value: ({ vm }) => memoryOf(vm) ?? 0, text: ({ vm }) => bytes(memoryOf(vm)), width: "100", align: "end", wideOnly: true },
    { key: "address", title: words.vms.address, value: ({ instance }) => addressesOf(instance)[0] ?? "", width: "150", wideOnly: true },
    { key: "host", title: words.vms.host, value: ({ instance }) => nodeOf(instance), width: "130", wideOnly: true },
    { key: "age", title: words.common.age, value: ({ vm }) => -Date.parse(vm.metadata.creationTimestamp), text: ({ vm }) => age(vm.metadata.creationTimestamp), width: "70", align: "end", wideOnly: true },
  ];
  return all.filter((one) => one !== false);
}
