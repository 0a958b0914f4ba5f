/* SPDX-License-Identifier: Apache-2.0 */
/* Preparing in a worker's buffer; see prepare.h. */
#include "manager/prepare.h"

#include "base/check.h"
#include "base/crash.h"
#include "base/size.h"
#include "manager/worker.h"
#include "model/view.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct prepare {
	pthread_mutex_t lock; /* of the list of free buffers, and held for nothing else */
	char *buffer[WORKER_THREADS_MAX];
	uint32_t free_count;  /* buffer[0 .. free_count - 1] are nobody's */
};

static uint64_t largest_image(const struct manager *manager)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < manager->model_count; i++) {
		const struct model_catalog *catalog = manager->model[i].catalog;
		uint64_t bytes = catalog->view != NULL ? model_view_image_bytes(catalog) : 0;

		if (most < bytes)
			most = bytes;
	}
	return most;
}

int prepare_open(struct manager *manager)
{
	uint64_t bytes = cnre_size_align_up(largest_image(manager), CNRE_PAGE_BYTES);
	struct prepare *prepare;

	if (bytes == 0)
		return 0;
	prepare = calloc(1, sizeof *prepare);
	if (prepare == NULL)
		return -ENOMEM;
	(void)pthread_mutex_init(&prepare->lock, NULL); /* cannot fail for a default mutex */
	while (prepare->free_count < WORKER_THREADS_MAX) {
		char *buffer = aligned_alloc(CNRE_PAGE_BYTES, bytes);

		if (buffer == NULL) {
			(void)prepare_close(prepare);
			return -ENOMEM;
		}
		prepare->buffer[prepare->free_count++] = buffer;
	}
	manager->prepare = prepare;
	return 0;
}

struct prepare *prepare_close(struct prepare *prepare)
{
	if (prepare == NULL)
		return NULL;
	while (prepare->free_count > 0)
		free(prepare->buffer[--prepare->free_count]);
	(void)pthread_mutex_destroy(&prepare->lock);
	free(prepare);
	return NULL;
}

static char *take_buffer(struct prepare *prepare)
{
	char *buffer;

	(void)pthread_mutex_lock(&prepare->lock);
	CNRE_CHECK(prepare->free_count > 0); /* there are as many as workers, and each has one at most */
	buffer = prepare->buffer[--prepare->free_count];
	(void)pthread_mutex_unlock(&prepare->lock);
	return buffer;
}

static void give_buffer(struct prepare *prepare, char *buffer)
{
	(void)pthread_mutex_lock(&prepare->lock);
	prepare->buffer[prepare->free_count++] = buffer;
	(void)pthread_mutex_unlock(&prepare->lock);
}

static void copy_back(const struct model_shape *shape, const struct model_plan *plan, const char *image, char *slab)
{
	for (uint32_t role = 0; role < MODEL_ROLES; role++) {
		if (shape->part[role].bytes > 0)
			memcpy(slab + plan->part_off[role], image + plan->part_off[role], shape->part[role].bytes);
		if (role == 0)
			CNRE_CRASH_POINT("prepare-half");
	}
}

void prepare_object(struct prepare *prepare, const struct model_catalog *catalog, uint32_t object,
		    const struct model_plan *plan, char *slab)
{
	char *image = take_buffer(prepare);

	model_view_prepare(catalog, object, plan, slab, image);
	CNRE_CRASH_POINT("prepare-made");
	copy_back(&catalog->shape[catalog->object[object].shape], plan, image, slab);
	give_buffer(prepare, image);
}
