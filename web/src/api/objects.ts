// Objects as the facade shows them: Kubernetes', with an id, links, and what may be done with them as they stand.

export interface State {
  name: string;
  message: string;
  error: boolean;
  transitioning: boolean;
}

export interface Metadata {
  name: string;
  namespace?: string;
  uid: string;
  resourceVersion: string;
  creationTimestamp: string;
  deletionTimestamp?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  ownerReferences?: { kind: string; name: string; uid: string }[];
  generateName?: string;
  state?: State;
  fields?: unknown[];
}

export interface Condition {
  type: string;
  status: string;
  reason?: string;
  message?: string;
  lastTransitionTime?: string;
}

export interface Thing<Spec = unknown, Status = unknown> {
  id: string;
  type: string;
  apiVersion: string;
  kind: string;
  links: Record<string, string>;
  actions?: Record<string, string>;
  metadata: Metadata;
  spec: Spec;
  status?: Status;
}

/** The facade's names of the kinds that the console shows. */
export const types = {
  virtualMachine: "kubevirt.io.virtualmachine",
  instance: "kubevirt.io.virtualmachineinstance",
  image: "harvesterhci.io.virtualmachineimage",
  keyPair: "harvesterhci.io.keypair",
  claim: "persistentvolumeclaim",
  network: "k8s.cni.cncf.io.networkattachmentdefinition",
  clusterNetwork: "network.harvesterhci.io.clusternetwork",
  backup: "harvesterhci.io.virtualmachinebackup",
  restore: "harvesterhci.io.virtualmachinerestore",
  clone: "clone.kubevirt.io.virtualmachineclone",
  volumeSnapshot: "snapshot.storage.k8s.io.volumesnapshot",
  template: "harvesterhci.io.virtualmachinetemplate",
  templateVersion: "harvesterhci.io.virtualmachinetemplateversion",
  setting: "harvesterhci.io.setting",
  supportBundle: "harvesterhci.io.supportbundle",
  storageClass: "storage.k8s.io.storageclass",
  node: "node",
  namespace: "namespace",
  event: "event",
  configMap: "configmap",
  secret: "secret",
  user: "management.cattle.io.user",
  roleBinding: "rbac.authorization.k8s.io.rolebinding",
  clusterRoleBinding: "rbac.authorization.k8s.io.clusterrolebinding",
} as const;

export const addressOf = (type: string, id = "") => `/v1/${type}${id === "" ? "" : `/${id}`}`;

export function idOf(namespace: string | undefined, name: string): string {
  return namespace ? `${namespace}/${name}` : name;
}

export function conditionOf(thing: { status?: unknown }, type: string): Condition | undefined {
  const conditions = (thing.status as { conditions?: Condition[] } | undefined)?.conditions;
  return conditions?.find((one) => one.type === type);
}
