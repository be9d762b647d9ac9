"""`runtime.gateway` as a process of its own, over scripted engines: SETTINGS.json as argument."""

import sys
from pathlib import Path

from runtime import gateway
from runtime.settings import RuntimeSettings

if __name__ == "__main__":
    engine = (sys.executable, str(Path(__file__).with_name("scripted_engine.py")))
    settings = RuntimeSettings.model_validate_json(Path(sys.argv[1]).read_bytes())
    sys.exit(gateway.serve(settings, worker=engine))
