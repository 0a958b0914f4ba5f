/* SPDX-License-Identifier: Apache-2.0 */
/* cnre-managerd: from settings to a budget and a serving manager. The only file of the manager that prints and exits. */
#include "base/check.h"
#include "base/log.h"
#include "base/size.h"
#include "manager/adopt.h"
#include "manager/budget.h"
#include "manager/check.h"
#include "manager/drive.h"
#include "manager/history.h"
#include "manager/keeper.h"
#include "manager/kv.h"
#include "manager/metrics.h"
#include "manager/path.h"
#include "manager/pool.h"
#include "manager/serve.h"
#include "manager/settings.h"
#include "manager/source.h"
#include "manager/store.h"
#include "manager/views.h"
#include "manager/vram.h"
#include "policy/policy.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

enum { EXIT_DONE, EXIT_FAILED, EXIT_USAGE };

static struct manager manager; /* some hundred KiB of tables, and there is one */

static void print_help(void)
{
	struct settings_help help;

	(void)printf("cnre-managerd: keeps the experts of models resident once for every engine on this machine\n\n"
		     "usage: cnre-managerd --model DIR [--ram SIZE] [--socket PATH] ...\n\n");
	for (uint32_t i = 0; settings_help_at(i, &help); i++) {
		(void)printf("  --%s%s%s\n      %s", help.name, help.argument != NULL ? " " : "",
			     help.argument != NULL ? help.argument : "", help.sentence);
		if (help.default_text != NULL && help.default_text[0] != '\0')
			(void)printf(" Default: %s.", help.default_text);
		if (help.environment != NULL)
			(void)printf(" Environment: %s.", help.environment);
		(void)printf("\n");
	}
	(void)printf("\nSizes take K M G T (binary). See cnre-managerd(8).\n");
}

static enum cnre_backing first_backing(const struct settings *settings)
{
	switch (settings->hugepages) {
	case SETTINGS_HUGEPAGES_2M:
		return CNRE_BACKING_2M;
	case SETTINGS_HUGEPAGES_THP:
		return CNRE_BACKING_THP;
	case SETTINGS_HUGEPAGES_4K:
		return CNRE_BACKING_4K;
	default:
		return CNRE_BACKING_1G;
	}
}

static struct serve_setup setup_from(const struct settings *settings, const char *socket, uint64_t budget_bytes)
{
	return (struct serve_setup){
		.budget_bytes = budget_bytes,
		.first_backing = first_backing(settings),
		.numa_node = settings->numa,
		.policy = settings->policy,
		.pool = settings->pool,
		.usage = settings->usage,
		.clients_max = settings->clients_max,
		.verify_loads = settings->verify == SETTINGS_VERIFY_LOAD,
		.read_timeout_ns = (int64_t)settings->read_timeout_ns,
		.digests = settings->digests,
		.drive_weights = settings->drive_weights,
		.scrub_ns = (int64_t)settings->scrub_ns, /* the parser gives at most INT64_MAX */
		.loader =
			{
				.engine = settings->io == SETTINGS_IO_URING  ? LOADER_ENGINE_URING
					  : settings->io == SETTINGS_IO_POOL ? LOADER_ENGINE_POOL
									     : LOADER_ENGINE_AUTO,
				.reads_in_flight_max = settings->reads_in_flight,
				.force_buffered = settings->direct == SETTINGS_DIRECT_NO,
			},
		.listener =
			{
				.path = socket,
				.mode = settings->socket_mode,
				.group = settings->socket_group,
				.idle_exit_ns = (int64_t)(settings->idle_exit_ns > INT64_MAX ? INT64_MAX
											     : settings->idle_exit_ns),
			},
	};
}

static int is_served(const char *directory)
{
	char *real = realpath(directory, NULL);
	int found = 0;

	for (uint32_t i = 0; real != NULL && i < manager.model_count; i++)
		found |= strcmp(manager.model[i].catalog->directory, real) == 0;
	free(real);
	return found;
}

static int add_model(const struct settings *settings, const char *directory, char *reason)
{
	struct model_source source = source_of(settings, directory);
	int r;

	if (is_served(directory)) {
		(void)snprintf(reason, SERVE_MESSAGE_BYTES, "it is given twice: leave one --model out");
		return -EEXIST;
	}
	r = source_check(&source, settings->model.count, reason, SERVE_MESSAGE_BYTES);
	if (r == 0)
		r = serve_add_model(&manager, &source, reason);
	if (r == 0)
		source_say(manager.model[manager.model_count - 1].catalog);
	return r;
}

static int add_models(const struct settings *settings, char *message)
{
	for (uint32_t i = 0; i < settings->model.count; i++) {
		const char *directory = settings->model.item[i];
		char reason[SERVE_MESSAGE_BYTES];
		int r = add_model(settings, directory, reason);

		if (r < 0) {
			(void)snprintf(message, SERVE_MESSAGE_BYTES, "--model %.200s: %.300s", directory, reason);
			return r;
		}
	}
	return 0;
}

static int check_pool(const struct settings *settings, char *message)
{
	if (policy_takes_pool(settings->policy, settings->pool))
		return 0;
	(void)snprintf(message, SERVE_MESSAGE_BYTES, "--policy %.40s: has a pool a layer in any case: leave --pool out",
		       settings->policy);
	return -EINVAL;
}

static int check_policy(const struct settings *settings, char *message)
{
	char known[200] = "";

	for (unsigned i = 0; policy_name_at(i) != NULL; i++) {
		if (strcmp(policy_name_at(i), settings->policy) == 0)
			return check_pool(settings, message);
		(void)snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i > 0 ? ", " : "",
			       policy_name_at(i));
	}
	(void)snprintf(message, SERVE_MESSAGE_BYTES, "--policy %.40s: no such policy: known are %s", settings->policy,
		       known);
	return -EINVAL;
}

static int decide_budget(const struct settings *settings, char *message)
{
	uint64_t least = POOL_WINDOWS_MIN * manager.window_bytes;
	struct budget_request request = {
		.configured_bytes = settings->ram_bytes,
		.configured_source = settings_source_name(settings, "ram"),
		.needed_bytes = manager.slab_bytes_total > least ? manager.slab_bytes_total : least,
		.private_bytes = settings->private_bytes + kv_claim_bytes(&manager) + vram_claim_bytes(settings),
		.may_use_huge = {settings->hugepages <= SETTINGS_HUGEPAGES_2M,
				 settings->hugepages <= SETTINGS_HUGEPAGES_1G},
		.held_bytes = adopt_pool_bytes(&manager),
	};
	static struct budget_inputs inputs; /* large */
	int r = budget_read_inputs("/", &inputs, message, SERVE_MESSAGE_BYTES);

	if (r < 0)
		return r;
	budget_read_node("/", settings->numa, &inputs);
	budget_decide(&inputs, &request, &manager.budget);
	return 0;
}

static void announce(const char *socket)
{
	char status[256], size[16];

	(void)snprintf(status, sizeof status, "READY=1\nSTATUS=serving %u model(s) from %s on %.100s\n",
		       manager.model_count, cnre_size_format(manager.budget.bytes, size, sizeof size), socket);
	store_notify(manager.store, status);
	if (manager.adopted)
		return; /* said by the first incarnation, and whoever read it may be gone */
	(void)printf("ready: %s\n", socket);
	(void)fflush(stdout);
}

static int serve(const struct settings *settings, const char *socket, char *message)
{
	struct serve_setup setup = setup_from(settings, socket, manager.budget.bytes);
	int r = serve_open(&manager, &setup, message);

	if (r < 0)
		return r;
	announce(listener_path(&manager));
	serve_run(&manager);
	serve_close(&manager);
	return 0;
}

static int fail(const char *message)
{
	cnre_log(CNRE_LOG_ERROR, "%s", message);
	return EXIT_FAILED;
}

static int run(const struct settings *settings)
{
	char message[SERVE_MESSAGE_BYTES] = "", socket[128];
	struct vram_request vram; /* asked again where it is used */

	if (check_policy(settings, message) < 0 || check_numa(settings->numa, message, sizeof message) < 0 ||
	    drive_check_weights(settings->drive_weights, 1 + settings->mirror.count, message, sizeof message) < 0 ||
	    metrics_check(settings->metrics, message, sizeof message) < 0 || vram_settings_parse(settings, &vram, message) < 0) {
		(void)fail(message);
		return EXIT_USAGE;
	}
	if (path_of_socket(settings->socket, socket, sizeof socket, message, sizeof message) < 0)
		return fail(message);
	manager.settings = settings;
	if (history_check_folder(settings->usage, message, sizeof message) < 0)
		return fail(message);
	if (add_models(settings, message) < 0 || views_add(&manager, message, sizeof message) < 0 || decide_budget(settings, message) < 0)
		return fail(message);
	if (settings->check)
		return check_print(&manager, socket) < 0 ? EXIT_FAILED : EXIT_DONE;
	if (check_budget(&manager, message, sizeof message) < 0 || serve(settings, socket, message) < 0)
		return fail(message);
	return EXIT_DONE;
}

/* Without systemd, and unless told otherwise, this process becomes the keeper of a manager that it starts. */
static int needs_keeper(const struct settings *settings)
{
	return settings->keeper == SETTINGS_KEEPER_AUTO && !settings->check && store_kind(manager.store) == STORE_NONE;
}

/* The passed socket is the keeper's, for each of its managers; what else was passed is nobody's. */
static int run_keeper(char *argv[])
{
	int listen_fd = store_take_listener(manager.store);

	store_drop_rest(manager.store);
	return keeper_run(argv, listen_fd);
}

static int run_with_store(const struct settings *settings, char *argv[])
{
	char message[STORE_MESSAGE_BYTES];
	int r = store_open(&manager.store);

	if (r < 0) {
		cnre_log(CNRE_LOG_ERROR, "cannot read the passed descriptors: %s", strerror(-r));
		return EXIT_FAILED;
	}
	manager.argv = argv;
	if (store_check_passed(manager.store, message) < 0) {
		(void)fail(message);
		r = EXIT_USAGE;
	} else {
		r = needs_keeper(settings) ? run_keeper(argv) : run(settings);
	}
	manager.store = store_close(manager.store);
	return r;
}

int main(int argc, char *argv[])
{
	struct settings *settings;
	char message[SERVE_MESSAGE_BYTES] = "";
	int r;

	(void)signal(SIGPIPE, SIG_IGN); /* a log that nobody reads any more is no reason to end */
	cnre_log_open("cnre-managerd", CNRE_LOG_INFO);
	if (keeper_run_for_manager(argv, &r))
		return r;
	r = settings_open(&settings, argc, argv, message, sizeof message);
	if (r < 0) {
		cnre_log(CNRE_LOG_ERROR, "%s", message);
		return r == -EINVAL ? EXIT_USAGE : EXIT_FAILED;
	}
	cnre_log_open("cnre-managerd", (enum cnre_log_level)settings->log_level);
	(void)prctl(PR_SET_NAME, "cnre-managerd");
	if (settings->help) {
		print_help();
		r = EXIT_DONE;
	} else if (settings->version) {
		(void)printf("cnre-managerd %s\n", CNRE_VERSION);
		r = EXIT_DONE;
	} else {
		r = run_with_store(settings, argv);
	}
	settings_close(settings);
	return r;
}
