/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One expert: acquire, release, describe. A hit is two atomic read-modify-writes on private words (reservation with log
 * position, cookie), one on the client's ledger, one seq_cst load of the state, and stores into the access log: no
 * system call, no lock, no allocation.
 */
#include "client/acquire.h"

#include "base/probe.h"
#include "client/vram.h"

int cnre_acquire(struct cnre *client, uint32_t layer, uint32_t expert, int64_t timeout_ns,
		 struct cnre_expert *ret_expert)
{
	return cnre_acquire_in_memory(client, layer, expert, timeout_ns, 0, ret_expert);
}

int cnre_release(struct cnre *client, struct cnre_expert *expert)
{
	uint64_t lease;
	uint32_t object;
	int r = cnre_client_check(client);

	if (r < 0)
		return r;
	if (expert == NULL)
		return -EINVAL;
	if (expert->lease == 0)
		return 0;
	lease = expert->lease;
	r = cnre_lease_object(client, lease, &object);
	if (r < 0) /* no lease in memory: one in VRAM costs it nothing to ask here */
		return cnre_vram_is_lease(lease) ? cnre_vram_release(client, expert) : r;
	expert->lease = 0;
	CNRE_CRASH_POINT("release-cookie-ended");
	CNRE_PROBE(lease_released, client->session, object, lease);
	return cnre_lease_lower(client, object);
}

int cnre_describe(struct cnre *client, uint32_t layer, uint32_t expert, struct cnre_expert *ret_expert)
{
	uint32_t object;
	int r = cnre_client_check(client);

	if (r < 0)
		return r;
	if (ret_expert == NULL)
		return -EINVAL;
	r = cnre_client_find(client, layer, expert, &object);
	if (r < 0)
		return r;
	cnre_view_fill(client, object, NULL, ret_expert);
	ret_expert->lease = 0;
	ret_expert->layer = layer;
	ret_expert->expert = expert;
	ret_expert->index = ret_expert->flags = 0;
	return 0;
}
