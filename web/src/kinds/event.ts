// Events. Their own field `type` stands as `_type`: the facade's `type` says what sort of object one is.

import type { Thing } from "@/api/objects";

export interface Happening extends Thing {
  involvedObject?: { kind?: string; name?: string; namespace?: string };
  reason?: string;
  message?: string;
  count?: number;
  _type?: string;
  lastTimestamp?: string | null;
  eventTime?: string | null;
  firstTimestamp?: string | null;
  source?: { component?: string };
}

export const happenedAt = (event: Happening) => event.lastTimestamp ?? event.eventTime ?? event.metadata.creationTimestamp;

export const isWarning = (event: Happening) => event._type === "Warning";
