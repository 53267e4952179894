// Snapshots of machines; the kind is called a backup, as Harvester has it.

import type { Condition, Thing } from "@/api/objects";

export interface BackupSpec {
  type?: string;
  source: { kind: string; name: string };
}

export interface BackupStatus {
  readyToUse?: boolean;
  progress?: number;
  error?: { message?: string };
  conditions?: Condition[];
  volumeBackups?: { volumeName?: string; volumeSize?: number }[];
  sourceUID?: string;
}

export type Backup = Thing<BackupSpec, BackupStatus>;
