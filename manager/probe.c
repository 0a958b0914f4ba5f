/* SPDX-License-Identifier: Apache-2.0 */
/* The probes of residency; see probe.h. What is worked out for them is worked out only while somebody is attached. */
#include "manager/probe.h"

#include "base/clock.h"
#include "base/probe.h"
#include "manager/residency_inner.h"

/* As people and clients call an object. */
struct named {
	uint32_t model, layer, expert;
};

static struct named name_of(struct manager *manager, uint32_t owner)
{
	const struct served_model *model = model_of(manager, owner);
	uint32_t object = owner - model->first_owner, layer = model->catalog->object[object].layer;

	return (struct named){model->number, layer, object - model->catalog->layer[layer].first_object};
}

void probe_admit(const struct load *load)
{
	struct named name;

	if (!CNRE_PROBE_ATTACHED(admit))
		return;
	name = name_of(load->manager, load->owner);
	CNRE_PROBE(admit, name.model, name.layer, name.expert, (uint32_t)load->kind);
}

/* Only demands have a time at which they were queued. */
static uint64_t queued_ns(const struct load *load)
{
	int64_t since_ns = load->manager->residency->demanded_ns[load->owner], now_ns = cnre_clock_now_ns();

	return load->kind == LOAD_OF_DEMAND && now_ns > since_ns ? (uint64_t)(now_ns - since_ns) : 0;
}

void probe_load_start(const struct load *load, uint32_t session)
{
	struct named name;

	if (!CNRE_PROBE_ATTACHED(load_start))
		return;
	name = name_of(load->manager, load->owner);
	CNRE_PROBE(load_start, load->number, name.model, name.layer, name.expert, slab_bytes_of(load->manager, load->owner),
		   session, (uint32_t)load->kind, queued_ns(load));
}

void probe_load_done(const struct load *load, int64_t ended_ns, int status)
{
	struct named name;

	if (!CNRE_PROBE_ATTACHED(load_done))
		return;
	name = name_of(load->manager, load->owner);
	CNRE_PROBE(load_done, load->number, name.model, name.layer, name.expert, (int32_t)status, load->bytes_read,
		   (uint64_t)(ended_ns - load->begun_ns));
}

void probe_publish(const struct load *load)
{
	struct named name;

	if (!CNRE_PROBE_ATTACHED(publish))
		return;
	name = name_of(load->manager, load->owner);
	CNRE_PROBE(publish, load->number, name.model, name.layer, name.expert, load->place);
}

void probe_evict(struct manager *manager, uint32_t owner)
{
	struct named name;

	if (!CNRE_PROBE_ATTACHED(evict))
		return;
	name = name_of(manager, owner);
	CNRE_PROBE(evict, name.model, name.layer, name.expert, slab_bytes_of(manager, owner));
}

void probe_migrate(struct manager *manager, uint32_t owner, enum probe_tier from, enum probe_tier to, uint64_t bytes)
{
	uint32_t left = (uint32_t)from, reached = (uint32_t)to;
	struct named name;

	if (!CNRE_PROBE_ATTACHED(migrate))
		return;
	name = name_of(manager, owner);
	CNRE_PROBE(migrate, name.model, name.layer, name.expert, left, reached, bytes);
}

void probe_reject(struct manager *manager, uint32_t owner, enum probe_reason reason)
{
	struct named name;

	if (!CNRE_PROBE_ATTACHED(reject))
		return;
	name = name_of(manager, owner);
	CNRE_PROBE(reject, name.model, name.layer, name.expert, (uint32_t)reason);
}
