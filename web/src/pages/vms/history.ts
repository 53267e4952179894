// What a machine used in the last hour, as its node measured it.

import { onScopeDispose, ref, watch, type Ref } from "vue";

import { get } from "@/api/http";

export interface Point {
  /** Seconds since the epoch. */
  t: number;
  cpu: number | null;
  memoryBytes: number;
  memoryUsedBytes: number | null;
  diskReadBps: number | null;
  diskWriteBps: number | null;
  netRxBps: number | null;
  netTxBps: number | null;
}

interface Told {
  /** Seconds. */
  interval: number;
  points: Point[];
}

const path = (namespace: string, name: string) =>
  `/apis/subresources.kubevirt.io/v1/namespaces/${encodeURIComponent(namespace)}/virtualmachineinstances/${encodeURIComponent(name)}/history`;

/** Asked for as often as there is a new point, while somebody looks and the machine runs. */
export function useHistory(machine: Ref<{ namespace: string; name: string } | undefined>): Ref<Point[]> {
  const points = ref<Point[]>([]);
  let timer: ReturnType<typeof setTimeout> | undefined;
  let round = 0;

  async function look(mine: number) {
    let wait = 10_000;
    const at = machine.value;
    if (at === undefined || mine !== round) return;
    if (document.visibilityState === "visible") {
      try {
        const told = await get<Told>(path(at.namespace, at.name));
        if (mine !== round) return;
        points.value = told.points;
        wait = told.interval * 1000;
      } catch {
        // It stopped, or is about to be there: asked again.
      }
    }
    if (mine === round) timer = setTimeout(() => void look(mine), wait);
  }

  watch(
    () => JSON.stringify(machine.value ?? null),
    () => {
      clearTimeout(timer);
      round += 1;
      points.value = [];
      void look(round);
    },
    { immediate: true },
  );
  onScopeDispose(() => {
    round += 1;
    clearTimeout(timer);
  });
  return points;
}
