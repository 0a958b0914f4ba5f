/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of loads: which object, which file, what to do. Bounded, since clients can make any number of them. */
#include "manager/residency_inner.h"

#include "base/clock.h"
#include "manager/digest.h"
#include "manager/health.h"

#include <stdio.h>

static const struct model_object *object_of(const struct load *load, const struct served_model *model)
{
	return &model->catalog->object[load->owner - model->first_owner];
}

static int may_say(const struct load *load)
{
	return cnre_log_allowed(&load->manager->residency->error_limit, cnre_clock_now_ns());
}

void load_log_failure(struct load *load, int status)
{
	const struct served_model *model = model_of(load->manager, load->owner);
	const struct model_object *object = object_of(load, model);
	char others[64] = "";

	if (!may_say(load))
		return;
	if (load->error.attempts > 1)
		(void)snprintf(others, sizeof others, "no replica is left after %u attempts, the last: ", load->error.attempts);
	cnre_log(
		CNRE_LOG_ERROR,
		"load: %s layer %u expert %u: %s%.300s: %s at byte %llu: check the drive and the file; the next request reads again",
		model->catalog->name, object->layer, object->expert, others,
		loader_file_path(load->manager->loader, load->error.file), health_words(status),
		(unsigned long long)load->error.off);
}

void load_log_mismatch(struct load *load, uint64_t expected)
{
	struct manager *manager = load->manager;
	const struct served_model *model = model_of(manager, load->owner);
	const struct model_object *object = object_of(load, model);
	const char *path = digest_path(manager->digests);

	if (!may_say(load))
		return;
	cnre_log(
		CNRE_LOG_ERROR,
		"load: %s layer %u expert %u: %.300s%s: digest %016llx, known is %016llx: compare the shard with its source; the next "
		"request reads again; if the shard is right, stop the manager%s%.300s and start it again",
		model->catalog->name, object->layer, object->expert,
		loader_file_path(manager->loader, load->part[0].read.run[0].file),
		load->part_count > 1 ? " or another replica" : "", (unsigned long long)load->digest,
		(unsigned long long)expected, path[0] != '\0' ? ", remove " : "", path);
}

void load_log_failover(struct load *load, int64_t ns)
{
	const struct served_model *model = model_of(load->manager, load->owner);
	const struct model_object *object = object_of(load, model);

	if (!may_say(load))
		return;
	cnre_log(CNRE_LOG_NOTICE, "load: %s layer %u expert %u: read from another replica, %.300s, %.1f ms after it was begun",
		 model->catalog->name, object->layer, object->expert,
		 loader_file_path(load->manager->loader, load->part[0].read.run[0].file), (double)ns / 1e6);
}
