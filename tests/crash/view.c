/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The world of the points of preparing (manager/prepare.h): int8 experts, a manager that serves them in the view rows16, too,
 * and a client of each kind. The manager is killed while a worker has made an object, or has copied half of it back; then
 * every prepared object is right, the checkpoint's own beside it, and nothing is lost.
 */
#include "cnre/cnre.h"
#include "tests/crash/crash.h"
#include "tests/support/packed.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_NS 30000000000
#define RESERVE_BYTES (4u * 16384)
#define ROUNDS 2                          /* one with the death in it, one after it */

static enum crash_result fail(struct crash *crash, const char *why)
{
	(void)snprintf(crash->reason, sizeof crash->reason, "%s", why);
	return CRASH_FAILED;
}

static int attach(const struct crash *crash, const char *view, struct cnre **ret_client)
{
	struct cnre_options options = {.size = sizeof options,
				       .socket = crash->daemon.socket,
				       .timeout_ns = TIMEOUT_NS,
				       .reserve_bytes = RESERVE_BYTES,
				       .view = view};

	return cnre_attach(ret_client, crash->daemon.model, &options);
}

static const char *compare(struct cnre *plain, const struct cnre_expert *prepared)
{
	struct cnre_expert raw;
	int is_right;

	if (cnre_acquire(plain, prepared->layer, prepared->expert, TIMEOUT_NS, &raw) != 0)
		return "no lease of the checkpoint's own expert";
	is_right = packed_is_right(&raw, prepared);
	return cnre_release(plain, &raw) == 0 && is_right ? NULL : "prepared bytes are wrong";
}

/* The prepared one first: in the first round nobody has read its bytes yet. */
static const char *use_both(struct cnre *plain, struct cnre *view, uint32_t layer, uint32_t number)
{
	struct cnre_expert prepared;
	const char *wrong;

	if (cnre_acquire(view, layer, number, TIMEOUT_NS, &prepared) != 0)
		return "no lease of a prepared expert";
	wrong = compare(plain, &prepared);
	return cnre_release(view, &prepared) == 0 ? wrong : "cnre_release failed";
}

static const char *use_view(struct crash *crash, struct cnre *plain)
{
	const char *wrong = NULL;
	struct cnre *view;

	if (attach(crash, "rows16", &view) != 0)
		return "cnre_attach to the view failed";
	for (uint32_t i = 0; i < ROUNDS * CRASH_LAYERS * CRASH_EXPERTS && wrong == NULL; i++)
		wrong = use_both(plain, view, i / CRASH_EXPERTS % CRASH_LAYERS, i % CRASH_EXPERTS);
	cnre_detach(view);
	return wrong;
}

static const char *use_all(struct crash *crash)
{
	struct cnre *plain;
	const char *wrong;

	if (attach(crash, NULL, &plain) != 0)
		return "cnre_attach failed";
	wrong = use_view(crash, plain);
	cnre_detach(plain);
	return wrong;
}

static enum crash_result run(struct crash *crash, const char *point, unsigned pass)
{
	const char *wrong;

	if (crash_start_dying_manager(crash, point, pass) < 0)
		return CRASH_FAILED;
	wrong = use_all(crash);
	if (wrong != NULL)
		return fail(crash, wrong);
	if (!crash_was_reached(crash))
		return CRASH_NOT_REACHED;
	return crash_is_clean(crash, 0, 0) ? CRASH_OK : fail(crash, "leases, reservations or slabs are lost after the death");
}

static int generate(struct crash *crash)
{
	static const char *const shape[] = {"--layers", "4", "--experts", "24", "--top-k", "4", "--hidden", "64",
					    "--intermediate", "60", "--vocab", "128", "--seed", "1", "--expert-format", "int8-row", NULL};

	return access(crash->daemon.model, F_OK) == 0 ? 0 : daemon_generate(&crash->daemon, shape);
}

enum crash_result crash_view_point(struct crash *crash, const char *point, unsigned pass)
{
	char model[sizeof crash->daemon.model];
	enum crash_result result;
	int status;

	if (!daemon_has_keeper()) {
		(void)fail(crash, "this cnre-managerd has no keeper");
		return CRASH_SKIPPED;
	}
	(void)snprintf(model, sizeof model, "%s", crash->daemon.model);
	(void)snprintf(crash->daemon.model, sizeof crash->daemon.model, "%s/int8", crash->daemon.directory);
	crash->daemon.environment[2] = "CNRE_VIEW=rows16";
	result = generate(crash) < 0 ? fail(crash, crash->daemon.reason) : run(crash, point, pass);
	status = daemon_stop(&crash->daemon, 20);
	crash->daemon.environment[2] = NULL;
	(void)snprintf(crash->daemon.model, sizeof crash->daemon.model, "%s", model);
	return result == CRASH_OK && status != 0 ? fail(crash, "the manager does not end properly") : result;
}
