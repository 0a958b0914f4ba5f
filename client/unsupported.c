/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the contract that this build does not have: the VRAM tier. Its names exist, so that a program written for
 * them runs and learns it from the return value; the capability bits of cnre_model say the same beforehand. Nothing is
 * emulated: an absent capability that seemed to work would only hide what it costs.
 */
#include "client/client.h"

int cnre_acquire_vram(struct cnre *client, uint32_t layer, uint32_t expert, int device, int64_t timeout_ns,
		      struct cnre_expert *ret_expert)
{
	uint32_t object;
	int r = cnre_client_check(client);

	(void)device;
	(void)timeout_ns;
	if (r < 0)
		return r;
	if (ret_expert == NULL)
		return -EINVAL;
	r = cnre_client_find(client, layer, expert, &object);
	return r < 0 ? r : -ENODEV;
}

/* No lease can be in VRAM. A cleared view is nothing to release, here as in cnre_release. */
int cnre_release_on_stream(struct cnre *client, struct cnre_expert *expert, void *cu_stream)
{
	int r = cnre_client_check(client);

	(void)cu_stream;
	if (r < 0)
		return r;
	if (expert == NULL)
		return -EINVAL;
	return expert->lease == 0 ? 0 : -ENODEV;
}
