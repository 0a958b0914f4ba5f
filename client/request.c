/* SPDX-License-Identifier: Apache-2.0 */
/* Posting of requests: objects of one layer, packed into slots, one bell at the end. */
#include "client/access.h"
#include "client/prefetch.h"

void cnre_post_begin(struct cnre_post *post, struct cnre *client, enum cnre_request_kind kind, uint32_t layer,
		     uint32_t token_count)
{
	post->client = client;
	post->request.kind = kind;
	post->request.layer = layer;
	post->request.token_count = token_count;
	post->request.count = 0;
	post->posted = 0;
	post->full = 0;
	post->marks = 0;
}

static void hand_over(struct cnre_post *post)
{
	if (post->request.count == 0)
		return;
	if (cnre_ring_post(post->client->channel, &post->request) == 0) {
		post->posted += post->request.count;
		for (uint32_t i = 0; post->marks && i < post->request.count; i++)
			cnre_prefetch_mark(post->client, post->request.object[i]);
	} else {
		post->full = 1;
	}
	post->request.count = 0;
}

void cnre_post_add(struct cnre_post *post, uint32_t object)
{
	post->request.object[post->request.count++] = object;
	if (post->request.count == CNRE_SLOT_OBJECTS)
		hand_over(post);
}

uint32_t cnre_post_end(struct cnre_post *post)
{
	hand_over(post);
	/* The leases are the demand (R7); a prefetch that finds no slot is simply not accepted. */
	if (post->full && post->request.kind == CNRE_REQUEST_LOAD)
		cnre_ring_want_scan(post->client->channel);
	if (post->full || post->posted > 0)
		cnre_ring_bell(post->client->channel, post->client->page);
	return post->posted;
}

void cnre_post_one(struct cnre *client, enum cnre_request_kind kind, uint32_t layer, uint32_t object)
{
	struct cnre_post post;

	cnre_post_begin(&post, client, kind, layer, 1);
	cnre_post_add(&post, object);
	(void)cnre_post_end(&post); /* a demand that found no slot is in the ledger */
}
