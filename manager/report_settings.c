/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cnrectl status: every setting, as it was given and where, and what is in force: the same, or what the manager found out on
 * this machine, or was told since by cnrectl.
 */
#include "base/check.h"
#include "base/size.h"
#include "manager/drive_inner.h"
#include "manager/kv.h"
#include "manager/listener.h"
#include "manager/loader.h"
#include "manager/pool.h"
#include "manager/report.h"
#include "manager/residency.h"
#include "manager/settings.h"
#include "manager/store.h"
#include "manager/vram.h"
#include "policy/policy.h"
#include "shm/numa.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define VALUE_BYTES 256u
#define BY_MACHINE "measured"
#define BY_ORDER "cnrectl"

/* One setting: its value in force, and by whom, where that is not as configured. An empty text: it is as configured. */
struct in_force {
	char text[VALUE_BYTES];
	const char *by;
};

static void say_bytes(struct in_force *in_force, uint64_t bytes, uint64_t configured_bytes)
{
	if (bytes != configured_bytes)
		(void)cnre_size_format(bytes, in_force->text, sizeof in_force->text);
}

/* By `cnrectl set ram`, of this manager or of one before. */
static int ram_was_set(const struct manager *manager, uint64_t bytes)
{
	for (uint32_t i = 0; i < manager->budget.term_count; i++)
		if (strstr(manager->budget.term[i].source, "(" BUDGET_SET_RAM ")") != NULL)
			return 1;
	return bytes != manager->budget.bytes;
}

static void ram(const struct manager *manager, struct in_force *in_force)
{
	uint64_t bytes = cnre_counter_get(&manager->counters->budget_bytes);

	say_bytes(in_force, bytes, manager->settings->ram_bytes);
	in_force->by = ram_was_set(manager, bytes) ? BY_ORDER : BY_MACHINE;
}

static void kv_ram(const struct manager *manager, struct in_force *in_force)
{
	if (manager->kv != NULL)
		say_bytes(in_force, kv_budget_bytes(manager), manager->settings->kv_ram_bytes);
	in_force->by = BY_ORDER;
}

/* Of each GPU; what stands there is of all that serve. */
static void vram(const struct manager *manager, struct in_force *in_force)
{
	uint64_t bytes = cnre_counter_get(&manager->counters->vram_budget_bytes);
	char message[VRAM_MESSAGE_BYTES], text[VALUE_BYTES / 2];
	struct vram_request request;
	/* [RS1] relaxed: our own word. */
	uint32_t devices = atomic_load_explicit(&manager->page->vram_devices, memory_order_relaxed);

	if (manager->settings->vram == NULL || vram_settings_parse(manager->settings, &request, message) < 0 ||
	    (!request.is_auto && bytes == request.budget_bytes * devices))
		return;
	(void)snprintf(in_force->text, sizeof in_force->text, "%s on %u GPUs", cnre_size_format(bytes, text, sizeof text), devices);
	in_force->by = manager->state->vram_budget_plus_one > 0 ? BY_ORDER : BY_MACHINE;
}

static void policy(const struct manager *manager, struct in_force *in_force)
{
	(void)snprintf(in_force->text, sizeof in_force->text, "%s", residency_policy_name(manager));
	in_force->by = BY_ORDER;
}

static void pool(const struct manager *manager, struct in_force *in_force)
{
	static const char *const names[] = {
		[POLICY_POOL_GLOBAL] = "global", [POLICY_POOL_LAYER] = "layer", [POLICY_POOL_SOFT] = "soft"};

	(void)snprintf(in_force->text, sizeof in_force->text, "%s", names[policy_pool_of(residency_policy(manager))]);
	in_force->by = "policy";
}

static void socket_of(const struct manager *manager, struct in_force *in_force)
{
	(void)snprintf(in_force->text, sizeof in_force->text, "%s", listener_path(manager));
	in_force->by = "user";
}

/* All kinds that there are, the largest first. */
static void hugepages(const struct manager *manager, struct in_force *in_force)
{
	struct pool_status status;
	size_t at = 0;

	pool_get_status(manager->pool, &status);
	for (int i = CNRE_BACKING_1G; i <= CNRE_BACKING_4K; i++)
		if (status.bytes_by_backing[i] > 0 && at < sizeof in_force->text)
			at += (size_t)snprintf(in_force->text + at, sizeof in_force->text - at, "%s%s", at > 0 ? ", " : "",
					       cnre_backing_name((enum cnre_backing)i));
}

static void numa(const struct manager *manager, struct in_force *in_force)
{
	struct pool_status status;

	pool_get_status(manager->pool, &status);
	if (status.numa_error != 0)
		(void)snprintf(in_force->text, sizeof in_force->text, "refused");
}

static void io(const struct manager *manager, struct in_force *in_force)
{
	struct loader_status status;

	loader_get_status(manager->loader, &status);
	(void)snprintf(in_force->text, sizeof in_force->text, "%s", status.uring ? "uring" : "pool");
}

static void direct(const struct manager *manager, struct in_force *in_force)
{
	struct loader_status status;

	loader_get_status(manager->loader, &status);
	if (manager->settings->direct == SETTINGS_DIRECT_AUTO && status.files_buffered > 0)
		(void)snprintf(in_force->text, sizeof in_force->text, status.files_direct > 0 ? "of some files" : "no");
}

static void reads_in_flight(const struct manager *manager, struct in_force *in_force)
{
	struct loader_status status;

	loader_get_status(manager->loader, &status);
	(void)snprintf(in_force->text, sizeof in_force->text, "%u", status.reads_in_flight_max);
}

static void drive_weights(const struct manager *manager, struct in_force *in_force)
{
	static const char *const names[] = {
		[DRIVE_WEIGHTS_EQUAL] = "equal", [DRIVE_WEIGHTS_MEASURING] = "being measured", [DRIVE_WEIGHTS_MEASURED] = "measured"};

	if (manager->drives->weights != DRIVE_WEIGHTS_DECLARED)
		(void)snprintf(in_force->text, sizeof in_force->text, "%s", names[manager->drives->weights]);
}

static void keeper(const struct manager *manager, struct in_force *in_force)
{
	static const char *const names[] = {[STORE_NONE] = "no", [STORE_SYSTEMD] = "systemd", [STORE_KEEPER] = "keeper"};
	struct store_status status;

	store_get_status(manager->store, &status);
	(void)snprintf(in_force->text, sizeof in_force->text, "%s", names[status.kind]);
}

static void clients_max(const struct manager *manager, struct in_force *in_force)
{
	(void)snprintf(in_force->text, sizeof in_force->text, "%u", manager->clients_max);
}

static const struct {
	const char *name;
	void (*say)(const struct manager *manager, struct in_force *in_force);
} decided[] = {
	{"ram", ram},
	{"kv-ram", kv_ram},
	{"vram", vram},
	{"policy", policy},
	{"pool", pool},
	{"socket", socket_of},
	{"hugepages", hugepages},
	{"numa", numa},
	{"io", io},
	{"direct", direct},
	{"reads-in-flight", reads_in_flight},
	{"drive-weights", drive_weights},
	{"keeper", keeper},
	{"clients-max", clients_max},
};

static json_t *report_setting(const struct manager *manager, const struct settings_line *line)
{
	struct in_force in_force = {.by = BY_MACHINE};

	for (size_t i = 0; i < CNRE_COUNT_OF(decided); i++)
		if (strcmp(decided[i].name, line->name) == 0)
			decided[i].say(manager, &in_force);
	if (in_force.text[0] == '\0' || strcmp(in_force.text, line->value) == 0)
		return json_pack("{s:s, s:o, s:o, s:o, s:o}", "name", line->name, "value", report_text(line->value), "source",
				 report_text(line->source), "in_force", report_text(line->value), "by", report_text(line->source));
	return json_pack("{s:s, s:o, s:o, s:o, s:s}", "name", line->name, "value", report_text(line->value), "source",
			 report_text(line->source), "in_force", report_text(in_force.text), "by", in_force.by);
}

json_t *report_settings(const struct manager *manager)
{
	json_t *list = json_array();
	struct settings_line line;

	for (uint32_t i = 0; settings_describe(manager->settings, i, &line); i++)
		(void)json_array_append_new(list, report_setting(manager, &line));
	return list;
}
