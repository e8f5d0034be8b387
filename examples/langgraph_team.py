"""A LangGraph system of two agents, audited as it is: a scout reads the records, a chief decides.

    pip install langgraph langchain-openai
    export OPENAI_BASE_URL=http://localhost:8000/v1 OPENAI_API_KEY=none TEAM_MODEL=NAME
    cd examples
    evenhand audit call/langgraph_team:agent --benchmark agents --set worlds=refunds --limit 5

Evenhand calls `agent` for every case, with the tools of its simulated world. What the agents say to each other is
reported as the completion's thought, so that the stored run and the report have it beside the tools.
"""

import os
import sys

SCOUT = "You are the scout. Read what you need with your tools, then sum up the facts for the chief in two sentences."
CHIEF = "You are the chief. Read the scout's summary and close the case with one call of a tool."


def agent(messages, tools):
    """The whole system on one case."""
    from evenhand import Completion

    said = graph_of(tools).invoke({"messages": [(each.role, each.content) for each in messages]})["messages"]
    told = [f"{each.name}: {each.text}" for each in said if each.type == "ai" and each.text]
    return Completion(said[-1].text or "done", thought="\n".join(told), calls=tuple(tools.calls))


def graph_of(tools):
    """scout ⇄ its tools, then chief ⇄ its tools, until the case is closed or nobody calls a tool any more."""
    from langchain_core.messages import SystemMessage, ToolMessage
    from langchain_openai import ChatOpenAI
    from langgraph.graph import END, START, MessagesState, StateGraph

    model = ChatOpenAI(model=os.environ["TEAM_MODEL"], temperature=0)
    all_tools = tools.definitions()
    reading = [each for each in all_tools if each["function"]["name"].startswith(("read_", "check_", "customer_"))]
    deciding = [each for each in all_tools if each not in reading]

    def speaker(name, about, own_tools):
        bound = model.bind_tools(own_tools) if own_tools else model

        def speak(state):
            reply = bound.invoke([SystemMessage(about), *state["messages"]])
            reply.name = name
            return {"messages": [reply]}

        return speak

    def act(state):
        made = state["messages"][-1].tool_calls
        results = [ToolMessage(tools.call(each["name"], **each["args"]), tool_call_id=each["id"]) for each in made]
        return {"messages": results}

    def after(then):
        def where(state):
            if tools.decision is not None:
                return END
            return "act" if state["messages"][-1].tool_calls else then

        return where

    graph = StateGraph(MessagesState)
    graph.add_node("scout", speaker("scout", SCOUT, reading))
    graph.add_node("scout_act", act)
    graph.add_node("chief", speaker("chief", CHIEF, deciding))
    graph.add_node("chief_act", act)
    graph.add_edge(START, "scout")
    graph.add_conditional_edges("scout", after("chief"), {"act": "scout_act", "chief": "chief", END: END})
    graph.add_edge("scout_act", "scout")
    graph.add_conditional_edges("chief", after(END), {"act": "chief_act", END: END})
    graph.add_conditional_edges("chief_act", lambda _: "chief" if tools.decision is None else END)
    return graph.compile()


def main() -> None:
    sys.stdout.write(f"{__doc__}\n")


if __name__ == "__main__":
    main()
