/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What residency tells whoever is attached to this process (base/probe.h, cnre-probes(7)): objects by model, layer and
 * expert, and loads by a number of their own. Each call does nothing while nobody is. Core thread.
 */
#ifndef CNRE_MANAGER_PROBE_H
#define CNRE_MANAGER_PROBE_H

#include <stdint.h>

struct load;
struct manager;

/* Why an object that was asked for is not loaded now; the numbers are part of the probe. */
enum probe_reason {
	PROBE_NOT_REJECTED = 0,
	PROBE_NOT_PREFERRED = 1,          /* the policy holds those that are resident to be worth more */
	PROBE_NO_ROOM = 2,
	PROBE_QUEUE_FULL = 3,
	PROBE_DRIVE_HANGS = 4,
};

void probe_admit(const struct load *load);
void probe_load_start(const struct load *load, uint32_t session);
/* Its reads are over (0), or it is: -errno. */
void probe_load_done(const struct load *load, int64_t ended_ns, int status);
void probe_publish(const struct load *load);
void probe_evict(struct manager *manager, uint32_t owner);
/* From and to a tier, as enum cnre_tier of cnre.h numbers them; bytes 0: a copy went, and nothing was copied. */
enum probe_tier { PROBE_TIER_ABSENT = 0, PROBE_TIER_RAM = 2, PROBE_TIER_VRAM = 3 };
void probe_migrate(struct manager *manager, uint32_t owner, enum probe_tier from, enum probe_tier to, uint64_t bytes);
void probe_reject(struct manager *manager, uint32_t owner, enum probe_reason reason);

#endif
