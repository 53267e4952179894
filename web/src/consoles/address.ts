// Where a machine's screen and serial line are.

export type Screen = "vnc" | "console";

/** What KubeVirt calls a stream of plain bytes. */
export const PROTOCOL = "plain.kubevirt.io";

export function path(namespace: string, name: string, screen: Screen): string {
  const place = [namespace, name].map(encodeURIComponent);
  return `/apis/subresources.kubevirt.io/v1/namespaces/${place[0]}/virtualmachineinstances/${place[1]}/${screen}`;
}

export const address = (namespace: string, name: string, screen: Screen) => `wss://${location.host}${path(namespace, name, screen)}`;
