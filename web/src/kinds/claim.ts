// Volumes: claims of disk space, as Kubernetes has them.

import type { Condition, Thing } from "@/api/objects";

export interface ClaimSpec {
  storageClassName?: string;
  volumeMode?: string;
  accessModes?: string[];
  resources: { requests: { storage: string } };
}

export interface ClaimStatus {
  phase?: string;
  capacity?: { storage?: string };
  conditions?: Condition[];
}

export type Claim = Thing<ClaimSpec, ClaimStatus>;
