/* SPDX-License-Identifier: Apache-2.0 */
/* The admission queue of one client; see admission.h. */
#include "client/admission.h"

#include "base/clock.h"
#include "client/hot.h"
#include "shm/futex.h"

/* Admission lock held. `entering`: a batch that nobody can sleep on yet, since its caller has not returned with it; or NULL. */
static void admit_fitting_locked(struct cnre *client, const struct cnre_batch *entering)
{
	while (client->queue_head != NULL) {
		struct cnre_batch *batch = client->queue_head;
		uint64_t position;

		/* Either it fits, or the mark is set while it does not: the next give cannot be missed. */
		if (cnre_gauge_take_or_mark(client, batch->distinct, batch->count + 1, &position) < 0)
			return;
		client->queue_head = batch->next;
		if (client->queue_head == NULL)
			client->queue_tail = NULL;
		batch->next = NULL;
		cnre_batch_admit(batch, position);
		/* [D1] release, pairs with [D2], [B6] and [B7]: the accesses; the batch is its owner's again. */
		atomic_store_explicit(&batch->admitted, 1, memory_order_release);
		if (batch != entering) /* so a batch that fits at once makes no system call */
			(void)cnre_futex_wake_all(&batch->admitted); /* an address that is only compared */
	}
	cnre_gauge_unmark(client);
}

void cnre_admission_run(struct cnre *client)
{
	(void)pthread_mutex_lock(&client->admission);
	admit_fitting_locked(client, NULL);
	(void)pthread_mutex_unlock(&client->admission);
}

void cnre_admission_enter(struct cnre_batch *batch)
{
	struct cnre *client = batch->client;

	(void)pthread_mutex_lock(&client->admission);
	batch->next = NULL;
	if (client->queue_tail != NULL)
		client->queue_tail->next = batch;
	else
		client->queue_head = batch;
	client->queue_tail = batch;
	if (client->queue_head == batch)
		admit_fitting_locked(client, batch);
	(void)pthread_mutex_unlock(&client->admission);
}

void cnre_admission_leave(struct cnre_batch *batch)
{
	struct cnre *client = batch->client;
	struct cnre_batch *before = NULL;

	(void)pthread_mutex_lock(&client->admission);
	for (struct cnre_batch *b = client->queue_head; b != NULL; before = b, b = b->next) {
		if (b != batch)
			continue;
		if (before != NULL)
			before->next = b->next;
		else
			client->queue_head = b->next;
		if (client->queue_tail == b)
			client->queue_tail = before;
		break;
	}
	admit_fitting_locked(client, NULL); /* a smaller one may have stood behind it */
	(void)pthread_mutex_unlock(&client->admission);
}

int cnre_admission_wait(struct cnre_batch *batch, int64_t deadline_ns)
{
	for (;;) {
		int64_t left_ns;

		/* [D2] acquire, pairs with [D1]: the accesses of the batch. */
		if (atomic_load_explicit(&batch->admitted, memory_order_acquire) != 0)
			return 0;
		left_ns = cnre_clock_left_ns(deadline_ns);
		if (left_ns == 0)
			return -ETIMEDOUT;
		(void)cnre_futex_wait(&batch->admitted, 0,
				      left_ns < CNRE_WAIT_SLICE_NS ? left_ns
								   : CNRE_WAIT_SLICE_NS); /* looked at again */
	}
}
