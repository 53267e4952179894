// Many machines that do not run, made by way of the API.

import { MACHINES } from "./house.mjs";

const AT_ONCE = 16;

export const nameOf = (number) => `m-${String(number).padStart(5, "0")}`;

export async function fleet(house, count) {
  let next = 0;
  const make = async () => {
    while (next < count) {
      const name = nameOf(next++);
      const spec = { domain: { devices: {}, resources: { limits: { cpu: "1", memory: "64Mi" } } } };
      await house.api("POST", MACHINES, { apiVersion: "kubevirt.io/v1", kind: "VirtualMachine", metadata: { name, namespace: "default" }, spec: { runStrategy: "Halted", template: { spec } } });
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, make));
}

/** Milliseconds of each frame while a list is scrolled through, the shortest first. */
export function scrolled(page, frames = 120) {
  return page.locator(".table .frame").evaluate(
    (frame, count) =>
      new Promise((resolve) => {
        const times = [];
        let last = performance.now();
        let step = 0;
        const tick = (now) => {
          times.push(now - last);
          last = now;
          frame.scrollTop += 900;
          step += 1;
          if (step < count) requestAnimationFrame(tick);
          else resolve(times.slice(1).sort((one, other) => one - other));
        };
        requestAnimationFrame(tick);
      }),
    frames,
  );
}
