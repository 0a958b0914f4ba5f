/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole-batch admission, first come first served within a client (R17): a batch gets the room of all its experts in one
 * step or waits in a queue. Whoever gives room back while the gauge says that a batch waits runs the queue, so the
 * batch's reads start at that moment and not when its owner wakes.
 */
#ifndef CNRE_CLIENT_ADMISSION_H
#define CNRE_CLIENT_ADMISSION_H

#include "client/batch.h"

/* Admits from the head of the queue what fits. Takes the admission lock. */
void cnre_admission_run(struct cnre *client);

/* Puts a batch at the end of the queue and admits what fits: perhaps this one. */
void cnre_admission_enter(struct cnre_batch *batch);

/* Takes a batch that is given up out of the queue; nothing if it was admitted. */
void cnre_admission_leave(struct cnre_batch *batch);

/* Waits until the batch is admitted: 0 or -ETIMEDOUT. */
int cnre_admission_wait(struct cnre_batch *batch, int64_t deadline_ns);

#endif
